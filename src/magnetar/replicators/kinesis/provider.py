"""How a replicator to Kinesis is configured, and opened.

    {"awsRegion": "us-west-1", "messageFormat": "FULL_MESSAGE_IN_JSON"}

Names and forms are those of Pulsar's Kinesis sink.  The client is boto3, which is imported when a producer is opened.
"""

import os
from importlib.util import find_spec
from typing import Final

from magnetar.replicators.aws.settings import AwsService
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.kinesis.forms import FORMS
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatorProducer

FORM: Final = "messageFormat"
ORDERING: Final = "retainOrdering"

_SERVICE: Final = AwsService(
    "Kinesis",
    "kinesis",
    "stream",
    {
        FORM: (f"one of {', '.join(FORMS)}", FORMS.__contains__),
        ORDERING: ("the text true or false", ("true", "false").__contains__),
    },
)


class KinesisProvider:
    type = "Kinesis"

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        _SERVICE.check(policies)

    def works_without_offsets(self, policies: ReplicatorPolicies) -> bool:
        return True

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> ReplicatorProducer:
        target = _SERVICE.target(topic, policies, os.environ)
        if find_spec("boto3") is None:
            raise ReplicatorConfigError(
                "a replicator to Kinesis needs the package boto3: pip install 'magnetar[replicators]'"
            )
        from magnetar.replicators.kinesis.producer import KinesisProducer

        return KinesisProducer(
            target,
            topic,
            FORMS[policies.properties.get(FORM, next(iter(FORMS)))],
            keeps_order=policies.properties.get(ORDERING) != "false",
        )
