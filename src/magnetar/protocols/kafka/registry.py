"""Which Kafka APIs this broker serves, and the shape of a handler.

One file under `handlers/` serves one API, and `apis.py` lists all of them.  It states::

    VERSIONS = (0, 4)                # the versions that are served; the codec may know more

    def handle(context: RequestContext, request: HeartbeatRequest) -> Answer: ...

    API = Api.of(codec, VERSIONS, handle)    # codec: the module of wire/kafka/messages

`handle` runs in arrival order on the event loop (stage one: validate, take effect).  It returns the response, or a
`Deferred` that is resolved later, or a coroutine for work that has to wait (stage two).  While one of these is under
way, no further request of its connection is handled.  Produce's deferred answer is the exception, once stage one has
ended.  Responses leave a connection in the order of its requests, whatever the order in which they are ready.  `None`
means that no response is due (Produce with acks=0).

A request with very many elements is decoded on a thread, and the handler gets it in pieces if the `Api` says where to
cut.  A coroutine may return `Large(response)` to have it encoded on the thread, too (`large.py`).

A handler answers expected errors (`BrokerError`) with the protocol's own code, by `errors.error_code`.  An exception
that it does not catch is our bug: the connection logs it and closes.

ApiVersions is computed from the table of APIs, so only APIs with a handler are advertised.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Generic, NamedTuple, Protocol, TypeAlias, TypeGuard, TypeVar

from magnetar.protocols.kafka.large import Pieces
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.wire.kafka.runtime import Buffer

Message = Any
Answer: TypeAlias = "Message | Deferred | Awaitable[Message] | None"
Request = TypeVar("Request")
Request_co = TypeVar("Request_co", covariant=True)


class Deferred:
    """A response that comes later; `resolve` may be called once, before or after `attach`."""

    # Whether no further request of its connection is handled while it waits.  (Kafka's broker mutes the channel of
    # every request until it is answered.)  False only for requests that are surely answered soon, and share work with
    # others.
    mutes = True
    # Whether its request, with all its content, is kept while it waits.
    keeps_request = True

    __slots__ = ("_on_resolved", "_response", "abandon", "hurry", "resolved", "stage_one", "time")

    def __init__(
        self, *, abandon: Callable[[], None] | None = None, hurry: Callable[[], None] | None = None
    ) -> None:
        # Called instead of an answer when the client is gone, so that all waits for it end.
        self.abandon = abandon
        # Called to get the answer that is possible now, because the server stops.
        self.hurry = hurry
        # The task that must end before the connection's next request begins; cancelled when the client is gone.
        self.stage_one: Callable[[], Awaitable[None]] | None = None
        # Counts the work for its request before it is resolved, if the client has a limit on that; set by the
        # session.
        self.time: RequestTime | None = None
        self.resolved = False
        self._response: Message = None
        self._on_resolved: Callable[[Message], None] | None = None

    def resolve(self, response: Message) -> None:
        assert not self.resolved, "a request is answered once"
        self.resolved = True
        on_resolved, self._on_resolved = self._on_resolved, None
        if on_resolved is not None:
            on_resolved(response)
        else:
            self._response = response

    def take_stage_one(self) -> Callable[[], Awaitable[None]]:
        """`stage_one`, which this answer forgets: it refers to the answer, and would form a circle with it."""
        stage_one, self.stage_one = self.stage_one, None
        assert stage_one is not None, "it is taken once"
        return stage_one

    def attach(self, on_resolved: Callable[[Message], None]) -> None:
        if self.resolved:
            on_resolved(self._response)
        else:
            self._on_resolved = on_resolved


class Silent(NamedTuple):
    """No response is due, but the client is throttled as if a response had a throttle time."""

    throttle_time_ms: int


class Parked(Deferred):
    """A response that waits for other clients, for any time; its request's content is kept, and counted, elsewhere."""

    __slots__ = ()
    keeps_request = False


def resolved(deferred: Deferred) -> asyncio.Future[object]:
    """A future that is done when `deferred` is resolved, and cancelled when the session abandons it."""
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    abandon = deferred.abandon

    def leave() -> None:
        if abandon is not None:
            abandon()
        answer.cancel()

    def resolve(response: object) -> None:
        if not answer.done():
            answer.set_result(response)

    deferred.abandon = leave
    deferred.attach(resolve)
    return answer


class Codec(Protocol[Request_co]):
    """A module of `wire/kafka/messages`: the bytes of one API."""

    @property
    def API_KEY(self) -> int: ...
    @property
    def VERSIONS(self) -> tuple[int, int]: ...
    @property
    def FLEXIBLE_SINCE(self) -> int | None: ...
    @property
    def __name__(self) -> str: ...

    def decode_request(self, version: int, buffer: memoryview, position: int = 0, /) -> Request_co: ...
    def encode_response(self, version: int, message: Any, out: list[Buffer], /) -> None: ...


@dataclass(frozen=True, slots=True)
class Api(Generic[Request]):
    """One served API: its codec functions and its handler.

    `handle` is called with a `RequestContext` and a request; the module's text says what it may return.  `pieces`
    says where a large request is cut, if it can be.
    """

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int | None
    decode_request: Callable[[int, memoryview, int], Request]
    encode_response: Callable[[int, Any, list[Buffer]], None]
    handle: Callable[[Any, Request], Any]
    pieces: Pieces | None

    @classmethod
    def of(
        cls,
        codec: Codec[Request],
        versions: tuple[int, int],
        handle: Callable[[Any, Request], Any],
        pieces: Pieces | None = None,
        *,
        decode: Callable[[int, memoryview, int], Request] | None = None,
        encode: Callable[[int, Any, list[Buffer]], None] | None = None,
    ) -> "Api[Request]":
        """`codec` is the API's module of `wire/kafka/messages`; `decode` and `encode` may replace its functions by
        equal, faster ones.
        """
        name = codec.__name__.rpartition(".")[2]
        (low, high), (least, most) = versions, codec.VERSIONS
        assert least <= low <= high <= most, f"no codec for {name} v{low} to v{high}"
        return cls(
            codec.API_KEY,
            name,
            low,
            high,
            codec.FLEXIBLE_SINCE,
            decode or codec.decode_request,
            encode or codec.encode_response,
            handle,
            pieces,
        )


def is_coroutine(answer: object) -> TypeGuard[Coroutine[Any, Any, Message]]:
    return isinstance(
        answer, CoroutineType
    )  # the type of `async def`'s results, because a check of the abstract class is slow
