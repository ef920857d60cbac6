"""A partition, read to where it ends now."""

from collections.abc import Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from magnetar.testing.server import MagnetarProcess

TIMEOUT_S = 60.0
NOTHING: Mapping[str, str] = {}


def read_partition(
    server: MagnetarProcess,
    topic: str,
    partition: int = 0,
    offset: int = 0,
    *,
    isolation: str = "read_committed",
    settings: Mapping[str, str] = NOTHING,
    timeout_s: float = TIMEOUT_S,
    no_end: type[Exception] = AssertionError,
) -> list[Message]:
    """The records from an offset on that a consumer of this isolation level gets.

    Raises:
        KafkaException: the broker's error, when it refuses.
        no_end: it sent nothing for so long.
    """
    reader = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "reads partitions to their ends",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            **settings,
        }
    )
    found: list[Message] = []
    try:
        reader.assign([TopicPartition(topic, partition, offset)])
        while True:
            message = reader.poll(timeout_s)
            if message is None:
                raise no_end(f"no end of {topic} {partition} after {len(found)} records")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
            else:
                raise KafkaException(error)
    finally:
        reader.close()
