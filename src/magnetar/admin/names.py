"""Topics in the paths of the admin API: `/persistent/{tenant}/{namespace}/{topic}`.

`{domain:domain}` in a route stands for one of the two kinds of topics and for nothing else, so that such a route never
answers for `/namespaces/...`.  It is known to the router once this module is imported.
"""

import zlib
from typing import TYPE_CHECKING

from starlette.convertors import Convertor, register_url_convertor

from magnetar.base.names import TopicName, parse_partition

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.log.partition import Partition


class _Domain(Convertor[str]):
    regex = "persistent|non-persistent"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("domain", _Domain())


def topic_name(domain: str, tenant: str, namespace: str, topic: str) -> tuple[TopicName, int]:
    """The topic and the partition (-1: the whole topic) that a path means; InvalidTopicName."""
    return parse_partition(f"{domain}://{tenant}/{namespace}/{topic}")


def partitions_of(
    broker: "Broker", domain: str, tenant: str, namespace: str, topic: str
) -> "list[Partition]":
    """All partitions of the topic that a path means, or the one that it names.

    Raises:
        InvalidTopicName, NamespaceNotFound, UnknownTopic
    """
    name, index = topic_name(domain, tenant, namespace, topic)
    found = broker.pulsar_topics.get(name)
    if index >= 0 or not found.is_partitioned:
        return [broker.pulsar_topics.partition(f"{domain}://{tenant}/{namespace}/{topic}")]
    return [found.partition(one) for one in range(found.partition_count)]


def topic_hash(full_name: str) -> int:
    """Where a topic, or a partition, lies in its namespace's hash space."""
    return zlib.crc32(full_name.encode())
