"""The caller, and what it asks for: a principal at an address, an operation, a resource.

A door makes one `Caller` for each connection, or for each HTTP request, and gives it to every use case.  Where clients
need not show who they are, each is `ANONYMOUS`, as at a Kafka listener without SASL.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from magnetar.base.clock import Clock


class Principal(NamedTuple):
    """An identity: Kafka's `User:alice` and Pulsar's role `alice` are the same one.

    A tuple, as the rules look each request's principal up: its hash takes no call.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Origin:
    """How a client has come: by which door and listener.  `client` is what its program calls itself, which no code
    verifies; `proxy` is the role that has logged in, where the caller is another one that it speaks for.
    """

    door: str = ""
    listener: str = ""
    client: str = ""
    proxy: str = ""


UNKNOWN_ORIGIN: Final = Origin()


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal at an address; `host` is numeric, and empty for the server itself.  `by_token`: it has logged in by a
    delegation token, or is a pipeline, and may not ask for such a token.

    `pipeline` is the pipeline that speaks for the principal, empty for none: it has the principal's rights, and those
    to what is its own (`pipeline_rights.py`).  No right depends on `origin`: it is for the audit log.
    """

    principal: Principal
    host: str = ""
    origin: Origin = field(default=UNKNOWN_ORIGIN, compare=False)
    by_token: bool = False
    pipeline: str = ""

    def logged_in(self, authenticated: "Authenticated") -> "Caller":
        """Who a client is from now on, which was this one before."""
        pipeline, origin = authenticated.pipeline, self.origin
        if pipeline:
            origin = replace(origin, proxy=f"pipeline {pipeline}")
        return Caller(authenticated.principal, self.host, origin, authenticated.by_token, pipeline)


USER: Final = "User"
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
OF_PIPELINE: Final = "pipeline-"  # what names begin with that are made from a pipeline's


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows.  `method` is the one that it names (`token`, `basic`, `tls`), empty for none.

    `certificate_name` is the CN of its certificate, which TLS has verified; empty where there is none.
    """

    method: str = ""
    data: bytes = field(default=b"", repr=False)
    certificate_name: str = ""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a client has shown to be.  That ends at `expires_at_ms` of the wall clock, or at `ends_s` of the monotonic
    one, whichever is first; None for one that does not end.
    """

    role: str
    expires_at_ms: int | None = None
    ends_s: float | None = None

    def has_expired(self, clock: Clock) -> bool:
        if self.expires_at_ms is None or self.ends_s is None:
            return False
        return clock.now_ms() >= self.expires_at_ms or clock.monotonic() >= self.ends_s


@dataclass(frozen=True, slots=True)
class Login:
    """A client that was let in by `method`.  `principal` is what it acts as: itself, or, when `identity` is a proxy,
    the client that the proxy speaks for.
    """

    principal: Principal
    identity: Identity
    method: str


class Operation(IntEnum):
    """Numbered as Kafka's `AclOperation`; what only Pulsar knows comes after those that Kafka may still add.

    No use case asks for ALL: it is what a rule may say.
    """

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    FUNCTIONS = 24
    SOURCES = 25
    SINKS = 26
    PACKAGES = 27


class ResourceType(Enum):
    CLUSTER = "cluster"
    TENANT = "tenant"
    NAMESPACE = "namespace"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    TRANSACTIONAL_ID = "transactional id"
    PIPELINE = "pipeline"
    DELEGATION_TOKEN = "delegation token"  # noqa: S105 - a name
    USER = "user"


class Resource(NamedTuple):
    """`name` is the full one (`persistent://tenant/namespace/topic`, `tenant/namespace`); of a subscription of one
    topic `topic` is that topic's, of a Kafka group it is empty.
    """

    type: ResourceType
    name: str
    topic: str = ""


CLUSTER: Final = Resource(ResourceType.CLUSTER, "kafka-cluster")  # as Kafka names it


def topic_resource(full_name: str) -> Resource:
    return Resource(ResourceType.TOPIC, full_name)


def namespace_resource(name: str) -> Resource:
    return Resource(ResourceType.NAMESPACE, name)


def tenant_resource(name: str) -> Resource:
    return Resource(ResourceType.TENANT, name)


def subscription_resource(topic: str, name: str) -> Resource:
    return Resource(ResourceType.SUBSCRIPTION, name, topic)


def group_resource(group_id: str) -> Resource:
    return Resource(ResourceType.SUBSCRIPTION, group_id)


def transactional_id_resource(transactional_id: str) -> Resource:
    return Resource(ResourceType.TRANSACTIONAL_ID, transactional_id)


def pipeline_resource(name: str) -> Resource:
    return Resource(ResourceType.PIPELINE, name)


def delegation_token_resource(token_id: str) -> Resource:
    return Resource(ResourceType.DELEGATION_TOKEN, token_id)


def user_resource(user: Principal) -> Resource:
    """The tokens of a user, as Kafka names them: `User:alice`."""
    return Resource(ResourceType.USER, str(user))


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """What lets clients in as its owner (KIP-48): they log in by its id and `hmac`.  Times are the wall clock's.

    `requester` has asked for it; the owner and `renewers` may renew it, until `max_ms`.
    """

    token_id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int
    max_ms: int
    hmac: bytes = field(repr=False)

    def has_expired(self, now_ms: int) -> bool:
        return self.expires_ms < now_ms

    def concerns(self, principal: Principal) -> bool:
        """Whether it is this one's, or may be renewed by it."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a client that logs in is to answer."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Who a client is that has logged in; `data` goes to it with that.  What it has shown ends at `ends_s` of the
    monotonic clock, if it does; `by_token`: that was a delegation token, or one of `pipeline`, which speaks for the
    principal.  Where what it has shown may be good for nothing before its end, `still_holds` tells.
    """

    principal: Principal
    data: bytes = b""
    ends_s: float | None = None
    by_token: bool = False
    pipeline: str = ""
    still_holds: Callable[[], bool] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A client that is refused in two steps: `data` goes to it, and again as an error once it has answered.  `reason`
    is for the log.
    """

    data: bytes
    reason: str


class Exchange(Protocol):
    """One client's login by one of SASL's mechanisms: no I/O, and nothing of the protocol that carries its messages."""

    def respond(self, message: bytes) -> Challenge | Authenticated | Refused:
        """Go on with what the client has sent.

        Raises:
            AuthenticationFailed: the login is over.
        """
        ...
