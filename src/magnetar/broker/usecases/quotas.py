"""Use cases of client quotas: administrators set how much clients may use, and these keep to it (KIP-546)."""

import asyncio
import math
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.config import INT_MAX
from magnetar.base.errors import kept
from magnetar.base.settings_connections import canonical_address
from magnetar.broker.errors import QuotaExceeded
from magnetar.broker.policy.errors import InvalidConfigRequest
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.client_quotas import BURST_S, ClientQuotas
from magnetar.broker.quotas.model import DEFAULT, Entity, Limit, Limits, Name
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation

USER: Final = "user"
CLIENT_ID: Final = "client-id"
ADDRESS: Final = "ip"
NAME_CHARS_MAX: Final = 1024
THROTTLE_MS_MAX: Final = (1 << 31) - 1  # what an answer has room for
RATE_MAX: Final = float((1 << 63) - 1)
_OF_CLIENTS: Final = (Limit.PRODUCED, Limit.FETCHED, Limit.MUTATED, Limit.WORKED)
# What can be limited by each name that an entity can have; in the order of `Entity`.
_LIMITS_OF: Final = {USER: _OF_CLIENTS, CLIENT_ID: _OF_CLIENTS, ADDRESS: (Limit.CONNECTED,)}
_WHOLE: Final = (Limit.PRODUCED, Limit.FETCHED, Limit.CONNECTED)  # as Kafka's, the others may be fractions
_LARGEST: Final = {Limit.CONNECTED: float(INT_MAX)}
_AT_ONCE: Final = 512  # entities that are looked at before others have their turn

T = TypeVar("T")

# An entity as clients write it: names by type, None for the default.
Described = Sequence[tuple[str, str | None]]


def throttle_ms(seconds: float) -> int:
    """How long a client has to wait, in the unit of Kafka's answers."""
    return math.ceil(min(seconds * 1000, THROTTLE_MS_MAX))


class QuotaFilter(NamedTuple):
    """Matches entities whose type has this name, None for the default; with `is_any` any name."""

    type: str
    name: str | None = None
    is_any: bool = False


class QuotaChange(NamedTuple):
    """The limits to set for an entity; None removes one."""

    entity: Described
    limits: Sequence[tuple[str, float | None]]


class Mutations:
    """The partitions that one request creates and deletes, counted against its client's quota (KIP-599).

    If the count is strict, a mutation is refused while the client owes something.  Otherwise it is done, and the
    client waits afterwards.  A request that is only checked counts, too, as in Kafka.
    """

    __slots__ = ("_bucket", "_clock", "_is_strict", "_until_s")

    def __init__(self, bucket: Bucket | None, clock: Clock, *, is_strict: bool) -> None:
        self._bucket = bucket
        self._clock = clock
        self._is_strict = is_strict
        self._until_s = 0.0

    def count(self, partitions: int) -> None:
        """The request is about to create or delete this many.

        Raises:
            QuotaExceeded: they must not be, and do not count.
        """
        bucket = self._bucket
        if bucket is None:
            return
        now_s = self._clock.monotonic()
        use = bucket.use_unless_owing if self._is_strict else bucket.use
        owed_s = use(partitions, now_s)
        if owed_s:
            self._until_s = now_s + owed_s
            if self._is_strict:
                raise QuotaExceeded("The throttling quota has been exceeded.")

    def throttle_ms(self) -> int:
        """How long the client has to wait now that all is done."""
        return throttle_ms(max(self._until_s - self._clock.monotonic(), 0.0)) if self._until_s else 0


class ClientMeter:
    """How much of its quotas one client has used.  Each request asks it, so it keeps what it has looked up."""

    __slots__ = (
        "_client_id", "_clock", "_fetched", "_monotonic", "_produced", "_quotas", "_user", "_version", "_worked",
    )  # fmt: skip

    def __init__(self, quotas: ClientQuotas, clock: Clock, user: str, client_id: str) -> None:
        self._quotas = quotas
        self._clock = clock
        self._monotonic = clock.monotonic
        self._user = user
        self._client_id = client_id
        self._look_up()

    def measures(self, user: str, client_id: str) -> bool:
        """Whether it measures the client with these names."""
        return self._user == user and self._client_id == client_id

    def _look_up(self) -> None:
        quotas = self._quotas
        self._version = quotas.version
        self._produced = quotas.bucket(Limit.PRODUCED, self._user, self._client_id)
        self._fetched = quotas.bucket(Limit.FETCHED, self._user, self._client_id)
        self._worked = quotas.bucket(Limit.WORKED, self._user, self._client_id)

    def is_timed(self) -> bool:
        """Whether the work for the client has to be timed."""
        if self._version != self._quotas.version:
            self._look_up()
        return self._worked is not None

    def worked(self, seconds: float) -> int:
        """The event loop has worked this long for the client; returns the milliseconds until it owes nothing."""
        bucket = self._worked
        if bucket is None:
            return 0
        owed_s = bucket.use(100 * seconds, self._monotonic())
        return throttle_ms(owed_s) if owed_s else 0

    def produced(self, size: int) -> int:
        """The client has produced this many bytes; returns the milliseconds to wait before its next request."""
        if self._version != self._quotas.version:
            self._look_up()
        bucket = self._produced
        if bucket is None:
            return 0
        owed_s = bucket.use(size, self._monotonic())
        return throttle_ms(owed_s) if owed_s else 0

    def fetched(self, size: int) -> int:
        """0: the client may have these bytes, which count.  Otherwise it gets none, and has to wait for this many
        milliseconds.
        """
        bucket = self._fetched
        if bucket is None:
            return 0
        owed_s = bucket.use_unless_owing(size, self._monotonic())
        return throttle_ms(owed_s) if owed_s else 0

    def mutations(self, *, is_strict: bool) -> Mutations:
        """The partitions that one request of the client creates and deletes."""
        bucket = self._quotas.bucket(Limit.MUTATED, self._user, self._client_id)
        return Mutations(bucket, self._clock, is_strict=is_strict)

    def fetch_bytes_max(self, wanted: int) -> int:
        """How much of this many bytes the client can get at once; ask this before `fetched`."""
        if self._version != self._quotas.version:
            self._look_up()
        bucket = self._fetched
        return wanted if bucket is None else min(wanted, int(bucket.rate * BURST_S))


class QuotaCases:
    def __init__(self, access: AccessControl, quotas: ClientQuotas, clock: Clock) -> None:
        self._access = access
        self._quotas = quotas
        self._clock = clock

    def meter(self, caller: Caller, client_id: str | None, known: ClientMeter | None = None) -> ClientMeter:
        """The client's meter; requires no right, because each client is measured.  Returns `known` if it is this
        client's.
        """
        user, client_id = caller.principal.name, client_id or ""
        if known is not None and known.measures(user, client_id):
            return known
        return ClientMeter(self._quotas, self._clock, user, client_id)

    async def describe(
        self, caller: Caller, filters: Sequence[QuotaFilter], is_strict: bool
    ) -> list[tuple[Described, Mapping[str, float]]]:
        """The limits of all entities that every filter matches; if strict, only of those without other types.

        Raises:
            ClusterNotAuthorized
            InvalidConfigRequest: a filter of no known type, or two of one.
        """
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, CLUSTER)
        types = [one.type for one in filters]
        _check_types(types)
        return [
            (described, {limit.value: rate for limit, rate in limits.items()})
            async for entity, limits in _in_turns([*self._quotas.all()])
            for described in [_described(entity)]
            if all(_holds(one, dict(described)) for one in filters)
            and (not is_strict or len(described) == len(types))
        ]

    async def alter(
        self, caller: Caller, changes: Sequence[QuotaChange], *, validate_only: bool
    ) -> list[InvalidConfigRequest | None]:
        """Change limits.  Returns for each entity what is wrong with its change, which then is not made.

        Raises:
            ClusterNotAuthorized
            MetadataError: nothing can be stored now.
        """
        self._access.require(caller, Operation.ALTER_CONFIGS, CLUSTER)
        async with self._quotas.lock:
            changed: dict[Entity, Limits] = {}
            results = [self._add(change, changed) async for change in _in_turns(changes)]
            if not validate_only:
                pairs = [*zip(changes, results, strict=True)]
                async with self._access.record_each(
                    [self._recording(caller, *one) async for one in _in_turns(pairs)]
                ):
                    await self._quotas.change(changed)
            return results

    def _add(self, change: QuotaChange, changed: dict[Entity, Limits]) -> InvalidConfigRequest | None:
        """Add a change to `changed`, or return what is wrong with it."""
        try:
            entity = _entity(change.entity)
            if entity in changed:
                raise InvalidConfigRequest("An entity cannot be altered twice in the same request")
            changed[entity] = _limits(entity, self._quotas.of(entity), change.limits)
        except InvalidConfigRequest as error:
            return kept(error)
        return None

    def _recording(
        self, caller: Caller, change: QuotaChange, problem: InvalidConfigRequest | None
    ) -> Recording:
        recording = self._access.record(
            caller,
            Change.QUOTAS_SET,
            CLUSTER,
            entity=dict(change.entity),
            set={key: rate for key, rate in change.limits if rate is not None},
            removed=[key for key, rate in change.limits if rate is None],
        )
        if problem is not None:
            recording.fails(problem.code)
        return recording


async def _in_turns(elements: Sequence[T]) -> AsyncIterator[T]:
    """All of them, with turns of the event loop in between."""
    for number, one in enumerate(elements, 1):
        yield one
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)


def _check_types(types: Collection[str]) -> None:
    for one in types:
        if one not in _LIMITS_OF:
            raise InvalidConfigRequest(f"Quotas are for {', '.join(_LIMITS_OF)}, and not for {one[:100]!r}")
    if ADDRESS in types and len(set(types)) > 1:
        raise InvalidConfigRequest(f"{ADDRESS} stands alone: its clients have no other names yet")
    if len(set(types)) < len(types):
        raise InvalidConfigRequest("An entity type cannot appear more than once")


def _entity(described: Described) -> Entity:
    _check_types([kind for kind, _ in described])
    if not described:
        raise InvalidConfigRequest(
            "A quota is for a user, a client id, or both, or an IP address; nothing is named"
        )
    names: dict[str, Name] = {}
    for kind, name in described:
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise InvalidConfigRequest(f"The name of a {kind} has at most {NAME_CHARS_MAX} characters")
        names[kind] = DEFAULT if name is None else _checked_address(name) if kind == ADDRESS else name
    return Entity(names.get(USER), names.get(CLIENT_ID), names.get(ADDRESS))


def _checked_address(name: str) -> str:
    address = canonical_address(name)
    if address is None:
        raise InvalidConfigRequest(f"{name[:100]!r} is not an IP address")
    return address


def _described(entity: Entity) -> Described:
    return [
        (kind, name if isinstance(name, str) else None)
        for kind, name in zip(_LIMITS_OF, entity, strict=True)
        if name is not None
    ]


def _holds(one: QuotaFilter, names: Mapping[str, str | None]) -> bool:
    name = one.name
    if one.type == ADDRESS and name is not None:
        name = canonical_address(name) or name
    return one.type in names and (one.is_any or names[one.type] == name)


def _limits(entity: Entity, limits: Limits, changes: Sequence[tuple[str, float | None]]) -> Limits:
    served = _LIMITS_OF[USER if entity.address is None else ADDRESS]
    for key, rate in changes:
        limit = next((one for one in served if one.value == key), None)
        if limit is None:
            names = ", ".join(one.value for one in served)
            raise InvalidConfigRequest(f"The quota {key[:100]!r} is not one of such clients: {names} are")
        if rate is None:
            limits.pop(limit, None)
        elif not 0 < rate <= _LARGEST.get(limit, RATE_MAX):
            raise InvalidConfigRequest(
                f"{key} is greater than 0, and at most {_LARGEST.get(limit, RATE_MAX):.0f}"
            )
        elif limit in _WHOLE and rate != math.floor(rate):
            raise InvalidConfigRequest(f"{key} is a whole number")
        else:
            limits[limit] = rate
    return limits
