"""Resource groups, as in Pulsar: rates that all topics share whose namespaces are in one.

    /resource-groups/<name>     {"v": 1, "rates": {"publishRateInMsgs": 100, ...}}

A group's rates apply in addition to the topic's own: the narrower of the two counts.  Nothing is reserved within a
group.  The topic that asks first gets the rate, and readers take turns (`dispatch_limit.py`).  A change takes effect
once it is durable.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.event import AwaitedEvent
from magnetar.broker.quotas.dispatch_limit import DispatchLimit
from magnetar.broker.quotas.model import GroupRates, Rate
from magnetar.broker.quotas.rate_limit import RateLimit, at_rate
from magnetar.metadata.store import MetadataStore

_ROOT: Final = "/resource-groups/"


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What is left of a group's rates; None for a rate that it does not have."""

    publish: RateLimit | None = None
    dispatch: DispatchLimit | None = None


NO_LIMITS: Final = GroupLimits()


class ResourceGroups:
    """See the module's text.  `changed` happens with the name of a group whose limits have changed."""

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self.changed: Final[AwaitedEvent[str]] = AwaitedEvent()
        self._rates: dict[str, GroupRates] = {}
        self._limits: dict[str, GroupLimits] = {}
        self._changing = asyncio.Lock()

    async def load(self) -> None:
        for path, one in await self._metadata.scan(_ROOT):
            self._apply(path.removeprefix(_ROOT), json.loads(one.value)["rates"])

    def __contains__(self, name: object) -> bool:
        return name in self._rates

    def __len__(self) -> int:
        return len(self._rates)

    @property
    def names(self) -> list[str]:
        return sorted(self._rates)

    def find(self, name: str) -> GroupRates | None:
        """The rates of a group; None if no group has the name."""
        return self._rates.get(name)

    def limits(self, name: str) -> GroupLimits:
        """The limits of a group; none if no group has the name."""
        return self._limits.get(name, NO_LIMITS)

    async def put(self, name: str, rates: GroupRates) -> None:
        """Create a group, or change these rates of it.  Raises MetadataError."""
        async with self._changing:
            whole = {**self._rates.get(name, {}), **rates}
            await self._metadata.put(_ROOT + name, json.dumps({"v": 1, "rates": whole}).encode())
            self._apply(name, whole)
        await self.changed.happened(name)

    async def delete(self, name: str) -> None:
        """Delete a group without namespaces, if it exists.  Raises MetadataError."""
        async with self._changing:
            await self._metadata.delete(_ROOT + name)
            self._rates.pop(name, None)
            self._limits.pop(name, None)

    def _apply(self, name: str, rates: GroupRates) -> None:
        former = self.limits(name)
        self._rates[name] = rates
        self._limits[name] = GroupLimits(
            at_rate(_rate(rates, "publish"), former.publish, RateLimit, self._clock),
            at_rate(_rate(rates, "dispatch"), former.dispatch, DispatchLimit, self._clock),
        )


def _rate(rates: Mapping[str, int], what: str) -> Rate | None:
    """A number below 1 means no limit."""
    messages, size = rates.get(f"{what}RateInMsgs", 0), rates.get(f"{what}RateInBytes", 0)
    return Rate(max(messages, 0), max(size, 0)) if messages > 0 or size > 0 else None
