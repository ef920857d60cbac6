"""The data of a record at Kinesis, in the forms of Pulsar's Kinesis sink, by its names for them."""

import json
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Final

from magnetar.replicators.provider import ReplicatedRecord
from magnetar.replicators.texts import properties

Encode = Callable[[ReplicatedRecord], bytes]


def raw(record: ReplicatedRecord) -> bytes:
    """The value; nothing if there is none."""
    return record.value or b""


def in_json(record: ReplicatedRecord) -> bytes:
    """Value and properties; the value is null if there is none."""
    payload = None if record.value is None else b64encode(record.value).decode()
    content = {"payloadBase64": payload, "properties": properties(record)}
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()


# A replicator uses the first one unless its configuration names another.
FORMS: Final[Mapping[str, Encode]] = {"ONLY_RAW_PAYLOAD": raw, "FULL_MESSAGE_IN_JSON": in_json}
