"""The rule book: stored rules, and `Decisions` by them in memory.

Each rule is one path below `/rules/` (`rule.py` has its content).  What must stay true: a change is one transaction,
and memory never shows what is not durable.  Changes take turns: if a change depends on what is stored (a grant replaces
what its role had), no other change comes between its reading and its writing.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.event import Event
from magnetar.base.tasks import Tasks
from magnetar.broker.security.decisions import Decisions
from magnetar.broker.security.errors import InvalidRule
from magnetar.broker.security.model import ResourceType
from magnetar.broker.security.rule import RULES_ROOT, Rule, namespace_of
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore, Put

_log = logging.getLogger(__name__)

RULES_MAX: Final = 1_000_000  # a kilobyte of memory each
TENANT_RULES_MAX: Final = 50_000  # of those that one tenant's administrators grant: others need room, too

Change = tuple[Sequence[Rule], Sequence[Rule]]  # to add, to remove


class Rules:
    """See the module's text.  `rights_changed` happens when callers may do something else than before: rules have
    changed, or what tenants and namespaces say has (`tenancy_changed`).
    """

    def __init__(self, metadata: MetadataStore, decisions: Decisions, tenancy_changed: Event[()]) -> None:
        self.decisions = decisions
        self._metadata = metadata
        self.rights_changed: Final[Event[()]] = Event()
        tenancy_changed.hear(self._tenancy_changed)
        self._changing = asyncio.Lock()
        self._tasks = Tasks(_log)
        self._count = 0
        self._counts: Counter[str] = Counter()  # by tenant

    async def load(self) -> None:
        """Read the stored rules."""
        stored = await self._metadata.scan(RULES_ROOT)
        rules = [Rule.decode(one.value) for _, one in stored]
        self.decisions.change(rules)
        self._count = len(stored)
        self._counts.update(map(tenant_of, rules))

    async def change(self, decide: Callable[[Decisions], Change], tenant: str = "") -> Change:
        """When it is this change's turn, add and remove what `decide` returns; returns what was not there before, and
        what is gone.

        `tenant` is the one whose administrators may make the change: then all are rules about what is in it.

        Raises:
            InvalidRule: there would be more than `RULES_MAX`, or in the tenant more than `TENANT_RULES_MAX`.
            MetadataError: all is as before.
        """
        # The request may be given up; what has begun goes on, and keeps its turn.
        return await asyncio.shield(self._tasks.begin("change rules", self._change(decide, tenant)))

    async def _change(self, decide: Callable[[Decisions], Change], tenant: str) -> Change:
        async with self._changing:
            wanted, unwanted = decide(self.decisions)
            kept = set(wanted)
            removed = [one for one in dict.fromkeys(unwanted) if one in self.decisions and one not in kept]
            added = [one for one in dict.fromkeys(wanted) if one not in self.decisions]
            if self._count + len(added) - len(removed) > RULES_MAX:
                raise InvalidRule(f"there are {self._count} rules, and {RULES_MAX} may be")
            more = len(added) - len(removed)
            if tenant and more > 0 and self._counts[tenant] + more > TENANT_RULES_MAX:
                raise InvalidRule(
                    f"there are {self._counts[tenant]} rules about the tenant {tenant}, and its administrators may"
                    f" make as many as {TENANT_RULES_MAX}"
                )
            if added or removed:
                puts = [Put(one.path, one.encode()) for one in added]
                await self._metadata.commit([*puts, *(Delete(one.path, ANY_VERSION) for one in removed)])
                self._count += more
                self._counts.update(map(tenant_of, added))
                self._counts.subtract(map(tenant_of, removed))
                self.decisions.change(added, removed)
                self.rights_changed.happened()
            return added, removed

    def _tenancy_changed(self) -> None:
        self.decisions.forget()
        self.rights_changed.happened()

    async def ended(self) -> None:
        """Return when no change is in progress."""
        await self._tasks.ended()

    async def forget_namespace(self, name: str) -> None:
        """Remove the rules about a namespace, its topics and their subscriptions, because it is deleted.

        Raises:
            MetadataError
        """

        def decide(decisions: Decisions) -> Change:
            return [], [one for one in decisions if _is_in(one, name)]

        await self.change(decide)


def tenant_of(rule: Rule) -> str:
    """The tenant that a rule is about; empty if it is about none, or several."""
    scope = rule.target.scope or (rule.target.name if rule.target.type is ResourceType.TOPIC else "")
    return (namespace_of(scope) or scope).partition("/")[0]


def _is_in(rule: Rule, namespace: str) -> bool:
    target = rule.target
    if target.type is ResourceType.TOPIC and not target.scope:
        return namespace_of(target.name) == namespace
    return bool(target.scope) and namespace in (target.scope, namespace_of(target.scope))
