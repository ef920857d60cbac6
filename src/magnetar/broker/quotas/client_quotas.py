"""How much clients may use, and how much of it is left: all in memory, limits in the metadata store as well.

    /client-quotas/<user>/<client id>          {"v": 1, "limits": {"producer_byte_rate": 1048576.0}}
    /client-quotas/any/any/<IP address>        {"v": 1, "limits": {"connection_creation_rate": 5.0}}

A name is `=` and hexadecimal digits of UTF-8; `default` and `any` are what they are in `Entity`.  A change takes effect
once it is durable.

Of all limits that match a client, the closest one counts (`_closest`), and no other.  Clients that match a limit by the
same names share what it allows.  A limit for all users without a limit of their own is the same amount for each of
these users.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.quotas.bucket import Bucket
from magnetar.broker.quotas.model import DEFAULT, Default, Entity, Limit, Limits, Name
from magnetar.metadata.store import Delete, MetadataStore, Put

BURST_S: Final = 10  # as Kafka's, which counts the last ten seconds
MUTATION_BURST_S: Final = 11  # as Kafka's, which has a bucket for these
BUCKETS_MAX: Final = 10_000  # the one used longest ago gives way: it has mostly filled up again

_ROOT: Final = "/client-quotas/"
_ANY: Final = "any"
_NAMED: Final = "="


class ClientQuotas:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._limits: dict[Entity, Limits] = {}
        self._buckets: OrderedDict[tuple[Limit, str | None, str | None], Bucket] = OrderedDict()
        self.version = 0  # another one after each change
        self.lock = asyncio.Lock()  # held from a look at what there is to the end of its change

    async def load(self) -> None:
        for path, one in await self._metadata.scan(_ROOT):
            entity = Entity(*map(_name, path.removeprefix(_ROOT).split("/")))
            limits = json.loads(one.value)["limits"]
            self._limits[entity] = {Limit(key): value for key, value in limits.items()}

    def all(self) -> Iterator[tuple[Entity, Mapping[Limit, float]]]:
        yield from self._limits.items()

    def of(self, entity: Entity) -> Limits:
        """The limits of exactly these clients; a copy."""
        return dict(self._limits.get(entity, {}))

    async def change(self, limits: Mapping[Entity, Limits]) -> None:
        """Set these limits, all in one step; raises MetadataError if they cannot be stored."""
        await self._metadata.commit(
            [
                Put(_path(entity), _encode(one)) if one else Delete(_path(entity))
                for entity, one in limits.items()
            ]
        )
        for entity, one in limits.items():
            if one:
                self._limits[entity] = dict(one)
            else:
                self._limits.pop(entity, None)
        self.version += 1

    def bucket(self, limit: Limit, user: str, client_id: str) -> Bucket | None:
        """The bucket of a client's rate; None if the client is not limited."""
        found = self._closest(limit, user, client_id)
        if found is None:
            return None
        entity, rate = found
        key = (
            limit,
            None if entity.user is None else user,
            None if entity.client_id is None else client_id,
        )
        bucket = self._buckets.get(key)
        if bucket is None:
            if len(self._buckets) >= BUCKETS_MAX:
                self._buckets.popitem(last=False)
            burst_s = MUTATION_BURST_S if limit is Limit.MUTATED else BURST_S
            bucket = self._buckets[key] = Bucket(rate, burst_s, self._clock.monotonic())
        else:
            self._buckets.move_to_end(key)
            if bucket.rate != rate:
                bucket.change_rate(rate)
        return bucket

    def connection_rate(self, address: str) -> float | None:
        """How many connections per second may come from an IP address; None if there is no limit."""
        for name in (address, DEFAULT):
            limits = self._limits.get(Entity(None, None, name))
            if limits is not None:
                return limits[Limit.CONNECTED]
        return None

    def _closest(self, limit: Limit, user: str, client_id: str) -> tuple[Entity, float] | None:
        for entity in (
            Entity(user, client_id), Entity(user, DEFAULT), Entity(user, None),
            Entity(DEFAULT, client_id), Entity(DEFAULT, DEFAULT), Entity(DEFAULT, None),
            Entity(None, client_id), Entity(None, DEFAULT),
        ):  # fmt: skip
            limits = self._limits.get(entity)
            if limits is not None and limit in limits:
                return entity, limits[limit]
        return None


def _path(entity: Entity) -> str:
    path = f"{_ROOT}{_written(entity.user)}/{_written(entity.client_id)}"
    return path if entity.address is None else f"{path}/{_written(entity.address)}"


def _written(name: Name) -> str:
    if isinstance(name, str):
        return f"{_NAMED}{name.encode().hex()}"
    return _ANY if name is None else name.value


def _name(text: str) -> Name:
    if text.startswith(_NAMED):
        return bytes.fromhex(text.removeprefix(_NAMED)).decode()
    return None if text == _ANY else Default(text)


def _encode(limits: Limits) -> bytes:
    return json.dumps({"v": 1, "limits": {limit.value: rate for limit, rate in limits.items()}}).encode()
