"""One connection's large requests: each waits for memory, a thread decodes it, and a thread encodes its answer.

A request of many elements would keep the event loop for as long as it takes to decode.  The session
(`session.py`) gives such a request to `LargeRequests` and handles no other one meanwhile, except if the request waits
for records or time.  What its objects may take of the memory is bounded for all connections together
(`service.memory`), so a request may wait for its turn.  If the connection closes while it waits, the request never
takes effect; one that is at work runs to its end, and its answer is dropped.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from magnetar.protocols.backpressure import Backpressure
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.large import Encoded
from magnetar.protocols.kafka.registry import Api, Deferred, is_coroutine, resolved
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.protocols.kafka.service import KafkaService
from magnetar.protocols.kafka.slot import OBJECTS_BYTES_MAX, OBJECTS_RATIO, Slot

HeedQuotas = Callable[[object, RequestTime | None], None]


class LargeRequests:
    """See the module's text.  It does not refer to its session: a cycle would need the collector."""

    def __init__(self, service: KafkaService, backpressure: Backpressure) -> None:
        self._service = service
        self._backpressure = backpressure
        self._waits_for_room: asyncio.Task[Any] | None = None
        self._closed = False

    async def answer(
        self,
        api: Api[Any],
        version: int,
        data: memoryview,
        position: int,
        context_of: Callable[[], RequestContext],
        heed_quotas: HeedQuotas,
    ) -> object:
        """The encoded answer of the request whose body begins at `position` of `data`; None if the client has gone.

        If the request can be cut (`Api.pieces`), it is handled in pieces.  `context_of` is called once the request is
        decoded, and `heed_quotas` before its answer is encoded.

        Raises:
            WireError: The body is malformed.
        """
        service = self._service
        slot = self._backpressure.at_work
        if not isinstance(slot, Slot):
            return None
        objects_bytes = min(len(data) * OBJECTS_RATIO, OBJECTS_BYTES_MAX)
        encode = partial(self._encoded, slot, api, version, heed_quotas)
        self._waits_for_room = asyncio.current_task()
        async with service.memory.objects(len(data), objects_bytes):
            self._waits_for_room = None
            request = await service.large.decode(partial(api.decode_request, version, data, position))
            answer: Any = None
            try:
                if self._closed:
                    return None
                service.request_counts[api.key] += 1
                context = replace(context_of(), has_objects=True)
                if api.pieces is not None:
                    ask = partial(api.handle, context)
                    answer = await service.large.in_pieces(ask, request, api.pieces)
                else:
                    answer = api.handle(context, request)
                if not isinstance(answer, Deferred):
                    return await encode(await answer if is_coroutine(answer) else answer)
            finally:
                if not isinstance(answer, Deferred) or not answer.keeps_request:
                    service.large.let_go_of(request)
        # It may wait for long, and other large requests must not wait for that.
        slot.deferred = answer
        if answer.keeps_request:
            slot.request_bytes += objects_bytes
            self._backpressure.began(objects_bytes, 0)
        else:
            del request, data
            self._backpressure.ended(slot.request_bytes, 0)
            slot.request_bytes = 0
        return await encode(await resolved(answer))

    def close(self) -> None:
        """The connection is gone: what waits for memory is cancelled, and no answer is encoded."""
        self._closed = True
        if self._waits_for_room is not None:
            self._waits_for_room.cancel()
            self._waits_for_room = None  # it refers to the session

    async def _encoded(
        self, slot: Slot, api: Api[Any], version: int, heed_quotas: HeedQuotas, answer: object
    ) -> Encoded | None:
        if self._closed:
            return None
        heed_quotas(answer, slot.time)
        return await self._service.large.encode(api.encode_response, version, answer)
