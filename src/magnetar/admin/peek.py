"""A message as an HTTP answer: its bytes in the body, its metadata in `X-Pulsar-` headers.

A batch is sent as one body, decompressed, with the number of its messages; pulsar-admin splits it.  A thread
decompresses it, up to `BODY_BYTES_MAX`.  All bodies that are being made or sent together have `BODIES_BYTES_MAX`,
however slowly clients read them; above that, a client gets an error, and may try again.  Those of one principal have
half of that: a few kilobytes are enough for a large message, and one client that reads slowly would keep all others
out.
"""

import json
from collections import Counter
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, Protocol, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from magnetar.admin.answers import Refused
from magnetar.admin.stats import iso_time
from magnetar.base.errors import WireError
from magnetar.broker.interop.model import Formed
from magnetar.broker.security.model import ANONYMOUS, Principal
from magnetar.wire.convert.codecs import expand_pulsar
from magnetar.wire.kafka.record_scan import Budget
from magnetar.wire.pulsar.entry import EntryView, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import CompressionType

BODY_BYTES_MAX: Final = 32 << 20
BODIES_BYTES_MAX: Final = 64 << 20
OF_ONE_BYTES_MAX: Final = BODIES_BYTES_MAX // 2
T = TypeVar("T")
_BODY_TYPE: Final = "application/octet-stream"


class Opener(Protocol):
    """The broker's threads for decompression, with a budget for each job."""

    async def run(self, owner: Hashable, job: Callable[[Budget], T]) -> T: ...


class Bodies:
    """Counts the bytes of large answers, messages and lists, that are being made or sent, and to whom."""

    def __init__(self) -> None:
        self.bytes = 0
        self._of: Counter[Principal] = Counter()

    def take(self, size: int, owner: Principal) -> None:
        """Count `size` bytes.  Raises Refused with 503 if there are too many already; one answer alone may have more
        than all together.
        """
        if self.bytes and self.bytes + size > BODIES_BYTES_MAX:
            raise Refused(503, "Other large messages are being read at this moment; try again")
        own = self._of[owner] if owner != ANONYMOUS else 0
        if own and own + size > OF_ONE_BYTES_MAX:
            raise Refused(503, "You are reading other large messages at this moment; try again")
        self.bytes += size
        self._of[owner] += size

    def give_back(self, size: int, owner: Principal) -> None:
        self.bytes -= size
        self._of[owner] -= size
        if not self._of[owner]:
            del self._of[owner]


class _MessageResponse(Response):
    """An answer that counts its body until it is sent, or its client has gone."""

    def __init__(self, body: bytes, headers: dict[str, str], bodies: Bodies, owner: Principal) -> None:
        super().__init__(body, media_type=_BODY_TYPE, headers=headers)
        self._bodies = bodies
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._bodies.give_back(len(self.body), self._owner)


async def message_response(formed: Formed, opener: Opener, bodies: Bodies, owner: Principal) -> Response:
    """The entry, in Pulsar's form, as an answer to `owner`.

    Raises:
        Refused: 413 if it is larger than `BODY_BYTES_MAX`, 500 if it cannot be read, 503 if too many messages are
            being sent.
    """
    assert formed.payload is not None
    entry = formed.entry
    name = f"message {entry.ledger_id}:{entry.entry_id}"
    try:
        view = read_entry(memoryview(formed.payload), verify=False)
    except WireError as error:
        raise Refused(500, f"{name} cannot be read: {error}") from None
    is_plain = view.is_encrypted or view.metadata.compression == CompressionType.NONE
    size = len(view.payload) if is_plain else view.metadata.uncompressed_size
    if size > BODY_BYTES_MAX:
        raise Refused(
            413,
            f"{name} has {size} bytes behind its compression, and at most {BODY_BYTES_MAX} are shown here; "
            "consume it",
        )
    bodies.take(size, owner)
    try:
        body = bytes(view.payload) if is_plain else await opener.run(bodies, partial(_body, view))
        return _MessageResponse(body, _headers(formed, view, len(body)), bodies, owner)
    except WireError as error:
        bodies.give_back(size, owner)
        raise Refused(500, f"{name} cannot be read: {error}") from None
    except BaseException:
        bodies.give_back(size, owner)
        raise


def _body(view: EntryView, budget: Budget) -> bytes:
    metadata = view.metadata
    return bytes(
        expand_pulsar(view.payload, metadata.compression, metadata.uncompressed_size, budget.bytes_max)
    )


def _headers(formed: Formed, view: EntryView, size: int) -> dict[str, str]:
    entry, metadata = formed.entry, view.metadata
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
        headers["X-Pulsar-batch-size"] = str(size)
    if metadata.HasField("partition_key"):
        headers["X-Pulsar-partition-key"] = metadata.partition_key
        headers["X-Pulsar-partition-key-b64-encoded"] = (
            "true" if metadata.partition_key_b64_encoded else "false"
        )
    if metadata.null_value:
        headers["X-Pulsar-null-value"] = "true"
    if metadata.HasField("deliver_at_time"):
        headers["X-Pulsar-deliver-at-time"] = iso_time(metadata.deliver_at_time)
    # A header is one line of Latin-1: other characters become escapes, line breaks become spaces.
    return {
        name: text.encode("ascii", "backslashreplace").decode().replace("\n", " ").replace("\r", " ")
        for name, text in headers.items()
    }
