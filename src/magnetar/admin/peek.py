"""A message as an HTTP answer: its bytes in the body, what else it has in `X-Pulsar-` headers.

A batch is answered as one body, decompressed, with the number of its messages: pulsar-admin takes it apart.
"""

import json
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from magnetar.admin.answers import Refused
from magnetar.admin.stats import iso_time
from magnetar.base.errors import WireError
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.pulsar.entry import read_entry

if TYPE_CHECKING:
    from magnetar.broker.subscriptions.forms import Formed

_BODY_TYPE: Final = "application/octet-stream"


def message_response(formed: "Formed") -> Response:
    """The entry, in Pulsar's form, as an answer; 500 with a reason for one that cannot be read."""
    assert formed.payload is not None
    entry = formed.entry
    try:
        view = read_entry(memoryview(formed.payload), verify=False)
        metadata = view.metadata
        body = bytes(view.payload)
        if not view.is_encrypted:
            body = bytes(expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size))
    except WireError as error:
        raise Refused(500, f"message {entry.ledger_id}:{entry.entry_id} cannot be read: {error}") from None
    headers = {
        "X-Pulsar-Message-ID": f"{entry.ledger_id}:{entry.entry_id}",
        "X-Pulsar-PROPERTY": json.dumps({pair.key: pair.value for pair in metadata.properties}),
        "X-Pulsar-publish-time": iso_time(metadata.publish_time),
        "X-Pulsar-producer-name": metadata.producer_name,
        "X-Pulsar-sequence-id": str(metadata.sequence_id),
        "X-Pulsar-Is-Encrypted": "true" if view.is_encrypted else "false",
        "X-Pulsar-txn-uncommitted": "false",
    }
    if metadata.event_time:
        headers["X-Pulsar-event-time"] = iso_time(metadata.event_time)
    if metadata.HasField("num_messages_in_batch"):
        headers["X-Pulsar-num-batch-message"] = str(metadata.num_messages_in_batch)
        headers["X-Pulsar-batch-size"] = str(len(body))
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = metadata.partition_key
        headers["X-Pulsar-partition-key-b64-encoded"] = (
            "true" if metadata.partition_key_b64_encoded else "false"
        )
    if metadata.null_value:
        headers["X-Pulsar-null-value"] = "true"
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = iso_time(metadata.deliver_at_time)
    # A header line is one line of Latin-1; what is neither is left to whoever consumes the message.
    safe = {
        name: text.encode("ascii", "backslashreplace").decode().replace("\n", " ").replace("\r", " ")
        for name, text in headers.items()
    }
    return Response(body, media_type=_BODY_TYPE, headers=safe)
