"""Which Kafka APIs this broker serves, and the shape of a handler.

One file under `handlers/` serves one API.  It states::

    MESSAGE = "heartbeat"            # module under wire/kafka/messages with the codecs
    VERSIONS = (0, 4)                # what is really served; may be narrower than what the codec knows

    def handle(context: RequestContext, request: HeartbeatRequest) -> Answer: ...

`handle` runs in arrival order on the event loop (stage one: validate, take effect).  It returns the response,
or a `Deferred` that something resolves later, or a coroutine for work that has to wait (stage two).  While one of
these is under way, no further request of its connection is handled; Produce's deferred answer is the exception, but for
what it may have to wait for in stage one.
Responses leave a connection in the order of its requests whatever order they are ready in.  `None` means that
no response is due (Produce with acks=0).

A request of very many elements is decoded on a thread, and is put to the handler in pieces if that names `PIECES`; a
coroutine may answer `Large(response)` to have it encoded there, too (`large.py`).

A handler answers expected trouble (`BrokerError`) with the protocol's own code, through `errors.error_code`;
what it does not catch is our bug: the connection logs it and closes.

ApiVersions is computed from these modules, so nothing can be advertised that has no handler.
"""

import asyncio
import importlib
import pkgutil
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeGuard

from magnetar.protocols.kafka import handlers
from magnetar.protocols.kafka.large import Pieces

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.broker.cluster.nodes import Node
    from magnetar.protocols.kafka.service import KafkaService
    from magnetar.wire.kafka.runtime import Buffer

Message = Any
Answer: TypeAlias = "Message | Deferred | Awaitable[Message] | None"


class Deferred:
    """A response that will be known later; `resolve` may be called once, before or after it is attached."""

    # While it waits, no further request of its connection is handled: Kafka's broker mutes the channel of every request
    # until that is answered.  Only what is sure to be answered soon, and gains by company, goes without.
    mutes = True
    # While it waits, its request is kept with all that it says.
    keeps_request = True

    __slots__ = ("_on_resolved", "_response", "abandon", "hurry", "resolved", "stage_one")

    def __init__(self) -> None:
        # Called instead of an answer when the client is gone, so that nothing goes on waiting for it.
        self.abandon: Callable[[], None] | None = None
        # Asks for the answer that can be given now, because the server stops.
        self.hurry: Callable[[], None] | None = None
        # What has to end before the connection's next request begins; cancelled when the client is gone.
        self.stage_one: Callable[[], Awaitable[None]] | None = None
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

    def attach(self, on_resolved: Callable[[Message], None]) -> None:
        if self.resolved:
            on_resolved(self._response)
        else:
            self._on_resolved = on_resolved


class Parked(Deferred):
    """Waits for other clients, for as long as they like: what its request said is kept, and counted, elsewhere."""

    __slots__ = ()
    keeps_request = False


def resolved(deferred: Deferred) -> "asyncio.Future[object]":
    """Done when it is resolved, cancelled when nobody waits for it any more."""
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


@dataclass(slots=True)
class RequestContext:
    """Who asks, where and in which version.  Requests of one connection that agree in all of it share one."""

    service: "KafkaService"
    broker: "Broker"
    node: "Node"  # the node id whose listener was connected to
    listener_name: str
    connection_id: int
    client_host: str
    local_host: str  # the address that the client connected to
    api_version: int
    client_id: str | None
    # True when the request's memory may be kept (it lies in its own block of the arena); otherwise what must
    # outlive stage one has to be copied.
    owns_memory: bool


class Handler(Protocol):
    def __call__(self, context: RequestContext, request: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Api:
    """One served API: its codec functions and its handler."""

    key: int
    name: str
    min_version: int
    max_version: int
    flexible_since: int | None
    decode_request: Callable[[int, memoryview, int], Message]
    encode_response: Callable[[int, Message, "list[Buffer]"], None]
    handle: Handler
    pieces: Pieces | None  # where a large request is cut


def load_apis() -> dict[int, Api]:
    """Import every handler and return the table from API key to `Api`."""
    apis: dict[int, Api] = {}
    for found in pkgutil.iter_modules(handlers.__path__):
        module = importlib.import_module(f"{handlers.__name__}.{found.name}")
        if hasattr(module, "MESSAGE"):
            api = _api_of(module)
            apis[api.key] = api
    return dict(sorted(apis.items()))


def _api_of(module: ModuleType) -> Api:
    codec = importlib.import_module(f"magnetar.wire.kafka.messages.{module.MESSAGE}")
    low, high = module.VERSIONS
    assert codec.VERSIONS[0] <= low <= high <= codec.VERSIONS[1], (
        f"{module.__name__}: no codec for {module.VERSIONS}"
    )
    return Api(
        key=codec.API_KEY,
        name=module.MESSAGE,
        min_version=low,
        max_version=high,
        flexible_since=codec.FLEXIBLE_SINCE,
        decode_request=codec.decode_request,
        encode_response=codec.encode_response,
        handle=module.handle,
        pieces=getattr(module, "PIECES", None),
    )


def is_coroutine(answer: object) -> TypeGuard[Coroutine[Any, Any, Message]]:
    return isinstance(answer, Coroutine)
