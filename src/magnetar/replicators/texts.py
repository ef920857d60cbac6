"""Keys, headers and places of records as texts, for targets that take no bytes there."""

from base64 import b64encode

from magnetar.replicators.provider import ReplicatedRecord
from magnetar.wire.convert.naming import is_text, properties_of


def key_text(key: bytes) -> str:
    """As Pulsar's clients see a key that is no text: in base64."""
    return key.decode() if is_text(key) else b64encode(key).decode()


def properties(record: ReplicatedRecord) -> dict[str, str]:
    """The headers of a record as properties of a Pulsar message."""
    found = properties_of((name.encode(), value) for name, value in record.headers)
    return {name.decode(): value.decode() for name, value in found}


def partition_name(topic: str, partition: int) -> str:
    """`topic` is a full name."""
    return f"{topic}-partition-{partition}"
