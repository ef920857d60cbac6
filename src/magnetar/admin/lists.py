"""A list of names, which may be very long, as an HTTP answer.

One long list is made at a time, in pieces with turns of the event loop between them, and sent in these pieces.  Its
memory counts with that of the messages that are being sent (`peek.py`).  Before the list is made, each name counts
`NAME_BYTES`.  Afterwards the list counts its real size, until it is sent or its client has gone.
"""

import json
from collections.abc import Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from magnetar.admin.answers import value
from magnetar.admin.context import caller_of, context_of
from magnetar.admin.peek import Bodies
from magnetar.base.lane import TEXTS_PER_PIECE, cut
from magnetar.broker.security.model import Principal
from magnetar.broker.usecases.pulsar_topics import TopicNames

NAME_BYTES: Final = 500  # of a long name, as a text and in the answer


class _ListResponse(Response):
    """An answer in pieces, which `bodies` has counted; it gives them back."""

    def __init__(self, pieces: Sequence[bytes], size: int, bodies: Bodies, owner: Principal) -> None:
        super().__init__(headers={"content-length": str(size)}, media_type="application/json")
        self._pieces = pieces
        self._size = size
        self._bodies = bodies
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send(
                {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            )
            for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._bodies.give_back(self._size, self._owner)


async def list_response(request: Request, listing: TopicNames) -> Response:
    """The names as a JSON list.

    Raises:
        NamespaceNotFound
        Refused: 503 if too many large answers are being sent.
    """
    if listing.count <= TEXTS_PER_PIECE:
        return value(await listing.all())
    context = context_of(request)
    bodies, owner = context.bodies, caller_of(request).principal
    async with context.one_list:
        counted_bytes = listing.count * NAME_BYTES
        bodies.take(counted_bytes, owner)
        try:
            pieces = await _encoded(request, await listing.all())
        finally:
            bodies.give_back(counted_bytes, owner)
        size = sum(map(len, pieces))
        bodies.take(size, owner)
        return _ListResponse(pieces, size, bodies, owner)


async def _encoded(request: Request, names: Sequence[str]) -> list[bytes]:
    pieces: list[bytes] = []

    def encode(some: Sequence[str]) -> None:
        before = b"," if pieces else b"["
        pieces.append(before + json.dumps(some, ensure_ascii=False, separators=(",", ":"))[1:-1].encode())

    await context_of(request).lane.each(cut(names), encode)
    return [*pieces, b"]"] if pieces else [b"[]"]
