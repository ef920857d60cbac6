"""How a replicator to Pulsar is configured, and opened.

    {"serviceUrl": "pulsar://pulsar:6650", "compressionType": "ZSTD"}

The client is pulsar-client, which is imported when a producer is opened.  It trusts the certificates of its package:
users of a namespace name no files.  The only credential is a `token`.
"""

import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.policies import TOPIC_PLACE, ReplicatorPolicies
from magnetar.replicators.properties import Properties, check_credentials, check_properties, require_property
from magnetar.replicators.provider import ReplicatorProducer

SERVICE_URL: Final = "serviceUrl"
COMPRESSION: Final = "compressionType"
BATCHES: Final = "batchingEnabled"
REPLICATED_FROM: Final = "replicatedFrom"
COMPRESSIONS: Final = ("NONE", "LZ4", "ZLIB", "ZSTD", "SNAPPY")
_URL: Final = re.compile(r"pulsar(\+ssl)?://[\w.:\[\],-]+/?", re.ASCII)
_TOPIC: Final = re.compile(r"(persistent://[^/\s]+/[^/\s]+/)?[^/\s]{1,249}")
_CLUSTER: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)

_PROPERTIES: Final[Properties] = {
    SERVICE_URL: ("pulsar://host:port or pulsar+ssl://host:port", _URL.fullmatch),
    COMPRESSION: (f"one of {', '.join(COMPRESSIONS)}", COMPRESSIONS.__contains__),
    BATCHES: ("the text true or false", ("true", "false").__contains__),
    REPLICATED_FROM: ("a name of letters, digits, dots, _ and -", _CLUSTER.fullmatch),
}


class PulsarProvider:
    type = "Pulsar"

    def validate_properties(self, namespace: str, policies: ReplicatorPolicies) -> None:
        _check(policies.properties, policies.credentials)
        for target in policies.topic_names.values():
            _check_topic(target.replace(TOPIC_PLACE, "topic"))

    def create_producer(self, topic: str, policies: ReplicatorPolicies) -> ReplicatorProducer:
        target = policies.target_of(topic.rpartition("/")[2])
        if target is None:
            raise ReplicatorConfigError(f"topicNameMapping says no topic of Pulsar for {topic}: add one")
        _check_topic(target)
        _check(policies.properties, policies.credentials)
        if find_spec("pulsar") is None:
            raise ReplicatorConfigError(
                "a replicator to Pulsar needs the package pulsar-client: pip install 'magnetar[replicators]'"
            )
        from magnetar.replicators.pulsar.producer import PulsarProducer

        properties = policies.properties
        return PulsarProducer(
            properties[SERVICE_URL],
            (policies.credentials or {}).get("token"),
            target,
            f"magnetar-{topic.partition('://')[2]}-{policies.replicator_id}",
            compression=properties.get(COMPRESSION, COMPRESSIONS[0]),
            cluster=properties.get(REPLICATED_FROM, "magnetar"),
            batches=properties.get(BATCHES) == "true",
        )


def _check(properties: Mapping[str, Any], credentials: Mapping[str, Any] | None) -> None:
    check_properties("Pulsar", properties, _PROPERTIES)
    require_property("Pulsar", properties, SERVICE_URL, "pulsar://host:port")
    check_credentials("Pulsar", credentials, ("token",))


def _check_topic(name: str) -> None:
    if not _TOPIC.fullmatch(name):
        raise ReplicatorConfigError(
            f"{name[:300]!r} cannot be a topic of Pulsar: give a name, or persistent://tenant/namespace/name"
        )
