"""How a replicator to DynamoDB is configured, and opened.

    {"awsRegion": "us-west-1", "writeMode": "upsert"}

The client is boto3, which is imported when a producer is opened.
"""

import os
from importlib.util import find_spec
from typing import Final

from magnetar.replicators.aws.settings import AwsService
from magnetar.replicators.dynamodb.items import Mode
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatorProducer

MODE: Final = "writeMode"
_MODES: Final = tuple(mode.value for mode in Mode)

_SERVICE: Final = AwsService(
    "DynamoDB", "dynamodb", "table", {MODE: (f"one of {', '.join(_MODES)}", _MODES.__contains__)}
)


class DynamoDbProvider:
    type = "DynamoDB"
    reads_fields = True

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        _SERVICE.check(policies)

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> ReplicatorProducer:
        target = _SERVICE.target(topic, policies, os.environ)
        if find_spec("boto3") is None:
            raise ReplicatorConfigError(
                "a replicator to DynamoDB needs the package boto3: pip install 'magnetar[replicators]'"
            )
        from magnetar.replicators.dynamodb.producer import DynamoDbProducer

        return DynamoDbProducer(target, topic, Mode(policies.properties.get(MODE, Mode.APPEND.value)))
