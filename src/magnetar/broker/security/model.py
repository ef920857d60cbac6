"""The caller, and what it asks for: a principal at an address, an operation, a resource.

A door makes one `Caller` for each connection, or for each HTTP request, and gives it to every use case.  Where
clients need not log in, each is `ANONYMOUS`, as at a Kafka listener without SASL.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import Final, NamedTuple, Protocol

from magnetar.base.clock import Clock
from magnetar.base.job_token import PIPELINE, job_of
from magnetar.base.settings_authentication import TOKEN


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
    """By which door and listener a client came.  `client` is the name that its program gives itself, which no code
    verifies.  `proxy` is the role that logged in, if the caller is another one for which it acts.
    """

    door: str = ""
    listener: str = ""
    client: str = ""
    proxy: str = ""


UNKNOWN_ORIGIN: Final = Origin()


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal at an address; `host` is numeric, and empty for the server itself.  `by_token`: it logged in with a
    delegation token, or is a pipeline or a function, and may not ask for such a token.

    `pipeline` is the pipeline that acts for the principal, empty if none does: it has the principal's rights, and
    those to its own resources (`pipeline_rights.py`).  `proxy` is the proxy that acts for the principal, if one does:
    both need the right.  No right depends on `origin`, which is for the audit log.
    """

    principal: Principal
    host: str = ""
    origin: Origin = field(default=UNKNOWN_ORIGIN, compare=False)
    by_token: bool = False
    pipeline: str = ""
    proxy: "Caller | None" = None

    @property
    def owner(self) -> str:
        """Whose a thing is that its owner may use without a right.  Behind a proxy it belongs to both: a proxy does not
        use what its client has begun without it.
        """
        by = "" if self.proxy is None else f"by {self.proxy.principal} for "
        return f"{by}{self.principal}"

    def logged_in(self, authenticated: "Authenticated") -> "Caller":
        """The caller that this client is after its login."""
        pipeline, function, origin = authenticated.pipeline, authenticated.function, self.origin
        if pipeline or function:
            proxy = f"pipeline {pipeline}" if pipeline else f"function {function}"
            origin = replace(origin, proxy=proxy)
        return Caller(authenticated.principal, self.host, origin, authenticated.by_token, pipeline)


USER: Final = "User"
ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
OF_PIPELINE: Final = "pipeline-"  # what names begin with that are made from a pipeline's


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client shows.  `method` is the one that it names (`token`, `basic`, `tls`), empty if it names none.

    `certificate_name` is the CN of its certificate, which TLS has verified; empty if it has none.
    """

    method: str = ""
    data: bytes = field(default=b"", repr=False)
    certificate_name: str = ""

    @property
    def job(self) -> str:
        """The kind of job whose token this is, empty if it is none.  Whichever methods there are, doors accept it or
        refuse the client: it never counts as nothing.
        """
        return job_of(self.data.decode("ascii", "replace")) if self.method == TOKEN else ""

    @property
    def is_of_pipeline(self) -> bool:
        return self.job == PIPELINE


class Withdrawable:
    """What a client has proved, which the server may withdraw before its end: it is valid while `still_holds` says so.
    A proof without `still_holds` is valid until its end.
    """

    __slots__ = ()
    still_holds: Callable[[], bool] | None

    @property
    def is_withdrawable(self) -> bool:
        return self.still_holds is not None

    @property
    def is_withdrawn(self) -> bool:
        return self.still_holds is not None and not self.still_holds()


@dataclass(frozen=True, slots=True)
class Identity(Withdrawable):
    """Who a client has proved to be.  The proof ends at `expires_at_ms` of the wall clock, or at `ends_s` of the
    monotonic clock, whichever is first; None if it does not end.
    """

    role: str
    expires_at_ms: int | None = None
    ends_s: float | None = None
    still_holds: Callable[[], bool] | None = field(default=None, compare=False)

    @property
    def ends(self) -> bool:
        """Whether the proof ends at some time, or can become invalid."""
        return not (self.expires_at_ms is None and self.ends_s is None and self.still_holds is None)

    def has_expired(self, clock: Clock) -> bool:
        if self.expires_at_ms is not None and clock.now_ms() >= self.expires_at_ms:
            return True
        return self.ends_s is not None and clock.monotonic() >= self.ends_s


@dataclass(frozen=True, slots=True)
class Login:
    """A client that has logged in by `method`.  `principal` is what it acts as: itself, or, if `identity` is a proxy,
    the client for which the proxy acts.
    """

    principal: Principal
    identity: Identity
    method: str


class Operation(IntEnum):
    """Numbers are those of Kafka's `AclOperation`; operations that only Pulsar has follow after those that Kafka may
    still add.

    No use case asks for ALL: only rules say it.
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
    """`name` is the full one (`persistent://tenant/namespace/topic`, `tenant/namespace`).  For a subscription of one
    topic `topic` is that topic's full name; for a Kafka group it is empty.
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
    """A token with which clients log in as its owner (KIP-48), by its id and `hmac`.  Times are the wall clock's.

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
        """Whether this principal owns the token or may renew it."""
        return principal == self.owner or principal in self.renewers


@dataclass(frozen=True, slots=True)
class Challenge:
    """What a client has to answer during its login."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Authenticated(Withdrawable):
    """Who a client is that has logged in; `data` is sent to it.  The proof ends at `ends_s` of the monotonic clock,
    if it ends.  `by_token`: it was a delegation token, or a token of `pipeline` or `function`, which acts for the
    principal.
    """

    principal: Principal
    data: bytes = b""
    ends_s: float | None = None
    by_token: bool = False
    pipeline: str = ""
    function: str = ""
    still_holds: Callable[[], bool] | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Refused:
    """A login that is refused in two steps: `data` goes to the client, and again as an error after its answer.
    `reason` is for the log.
    """

    data: bytes
    reason: str


class Exchange(Protocol):
    """One client's login by one SASL mechanism: without I/O, and without the protocol that carries its messages."""

    def respond(self, message: bytes) -> Challenge | Authenticated | Refused:
        """Continue with what the client has sent.

        Raises:
            AuthenticationFailed: the login is over.
        """
        ...
