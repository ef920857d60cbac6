"""Rules in the form of Kafka's tools: access control lists.

A name means what it means to Kafka's clients.  `orders` is a topic in their own namespace, and the prefix `ord` is
topics in that namespace.  `*` is all topics in it and none outside.  Topics in other namespaces have longer names:
`tenant/namespace/orders`, the prefix `tenant/namespace/ord`, and `tenant/namespace/*` for all topics there.  If a
client sends back what it was shown for a rule, it means the same rule.

Some rules have no such form and are left out: Pulsar's rules on subscriptions in other namespaces and of single
topics, and on functions, sources, sinks and packages.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from magnetar.base.names import NON_PERSISTENT, PERSISTENT, InvalidTopicName, TopicName
from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.errors import InvalidRule, SecurityDisabled
from magnetar.broker.security.model import CLUSTER, Caller, Operation, Resource, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target, namespace_of
from magnetar.broker.security.rules import Rules

_EVERY: Final = "*"
_CHARS_MAX: Final = 4096
_AT_ONCE: Final = 512  # rules that are looked at before others have their turn
_PULSAR_ONLY: Final = (Operation.FUNCTIONS, Operation.SOURCES, Operation.SINKS, Operation.PACKAGES)


class Acl(NamedTuple):
    """One binding; `is_prefix` is its pattern type, and `type` SUBSCRIPTION is a group."""

    type: ResourceType
    name: str
    is_prefix: bool
    principal: str
    host: str
    operation: Operation
    allow: bool


class Match(Enum):
    """How a filter compares names."""

    ANY = "any"  # the name of a rule, whatever its pattern
    MATCH = "match"  # every rule that is about the name
    LITERAL = "literal"
    PREFIXED = "prefixed"


@dataclass(frozen=True, slots=True)
class AclFilter:
    """None matches any value."""

    type: ResourceType | None = None
    name: str | None = None
    match: Match = Match.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    allow: bool | None = None


class AclCases:
    """See the module's text.  `home` is the namespace of Kafka's clients."""

    def __init__(self, access: AccessControl, rules: Rules | None, tenant: str, namespace: str) -> None:
        self._access = access
        self._rules = rules
        self._tenant = tenant
        self._namespace = namespace
        self._home = f"{tenant}/{namespace}"

    async def describe(self, caller: Caller, wanted: AclFilter) -> Sequence[Acl]:
        """The bindings that a filter matches.

        Raises:
            ClusterNotAuthorized, SecurityDisabled
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return [acl for _, acl in await self._find(self._book(), wanted)]

    def check_changes(self, caller: Caller) -> None:
        """Check that the caller may change rules.  Raises ClusterNotAuthorized, SecurityDisabled."""
        self._access.require(caller, Operation.ALTER, CLUSTER)
        self._book()

    def check(self, acl: Acl) -> None:
        """Check that such a rule can exist.  Raises InvalidRule."""
        self._rule(acl)

    async def create(self, caller: Caller, acls: Sequence[Acl]) -> None:
        """Add these rules, all in one step.  Rules that exist stay as they are.

        Raises:
            ClusterNotAuthorized, SecurityDisabled, InvalidRule, MetadataError
        """
        self.check_changes(caller)
        added = [self._rule(acl) for acl in acls]
        async with self._access.record_each(
            [self._recording(caller, Change.ACL_CREATE, one) for one in acls]
        ):
            await self._book().change(lambda _: (added, ()))

    async def delete(self, caller: Caller, wanted: Sequence[AclFilter]) -> list[Sequence[Acl]]:
        """Remove the rules that any of the filters matches, all in one step; returns what each filter matched.

        Raises:
            ClusterNotAuthorized, SecurityDisabled, MetadataError
        """
        self.check_changes(caller)
        book = self._book()
        found = [await self._find(book, one) for one in wanted]
        removed = [rule for rows in found for rule, _ in rows]
        told = dict.fromkeys(acl for rows in found for _, acl in rows)
        async with self._access.record_each(
            [self._recording(caller, Change.ACL_DELETE, one) for one in told]
        ):
            await book.change(lambda _: ((), removed))
        return [[acl for _, acl in rows] for rows in found]

    def _recording(self, caller: Caller, change: Change, acl: Acl) -> Recording:
        return self._access.record(
            caller,
            change,
            Resource(acl.type, acl.name),
            is_prefix=acl.is_prefix,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation.name,
            allow=acl.allow,
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _book(self) -> Rules:
        if self._rules is None:
            raise SecurityDisabled("No Authorizer is configured.")
        return self._rules

    async def _find(self, book: Rules, wanted: AclFilter) -> list[tuple[Rule, Acl]]:
        found = []
        for number, rule in enumerate(list(book.decisions)):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            acl = self._shown(rule)
            if acl is not None and self._passes(wanted, rule, acl):
                found.append((rule, acl))
        return found

    def _passes(self, wanted: AclFilter, rule: Rule, acl: Acl) -> bool:
        if wanted.type not in (None, acl.type) or wanted.principal not in (None, acl.principal):
            return False
        if wanted.host not in (None, acl.host) or wanted.operation not in (None, acl.operation):
            return False
        if wanted.allow not in (None, acl.allow):
            return False
        if wanted.match in (Match.LITERAL, Match.PREFIXED) and acl.is_prefix is not (
            wanted.match is Match.PREFIXED
        ):
            return False
        if wanted.name is None or acl.name == self._as_shown(acl.type, wanted.name, acl.is_prefix):
            return (
                wanted.name is None
                or wanted.match is not Match.MATCH
                or not acl.is_prefix
                or (self._is_about(rule.target, wanted.name))
            )
        return wanted.match is Match.MATCH and self._is_about(rule.target, wanted.name)

    def _is_about(self, target: Target, name: str) -> bool:
        """Whether a rule is about what a name means."""
        if target.type is ResourceType.TOPIC:
            try:
                name = TopicName.parse(name, self._tenant, self._namespace).full
            except InvalidTopicName:
                return False
            if target.pattern is Pattern.EVERY:
                return target.scope == namespace_of(name)
        if target.pattern is Pattern.PREFIXED:
            return name.startswith(target.name)
        return target.pattern is Pattern.EVERY or target.name == name

    def _as_shown(self, kind: ResourceType, name: str, is_prefix: bool) -> str:
        try:
            return self._name(self._target(kind, name, is_prefix)) or name
        except InvalidRule:
            return name

    # --- from what a client says to a rule, and back -----------------------------------------------------------------

    def _rule(self, acl: Acl) -> Rule:
        kind, _, name = acl.principal.partition(":")
        if not kind or not name:
            raise InvalidRule(f"a principal is written as User:alice, not {acl.principal[:100]!r}")
        if not acl.host:
            raise InvalidRule("a rule has a host, which is * for every one")
        if sum(map(len, (acl.principal, acl.host, acl.name))) > _CHARS_MAX:
            raise InvalidRule(f"principal, host and name of a rule have {_CHARS_MAX} characters at most")
        target = self._target(acl.type, acl.name, acl.is_prefix)
        return Rule(acl.principal, acl.operation, target, acl.allow, acl.host)

    def _target(self, kind: ResourceType, name: str, is_prefix: bool) -> Target:
        if not name:
            raise InvalidRule("Resource name should not be empty")
        if kind is ResourceType.CLUSTER and (is_prefix or name != CLUSTER.name):
            raise InvalidRule(f"The only valid name for the CLUSTER resource is {CLUSTER.name}")
        if kind is ResourceType.TOPIC:
            return self._topics_with(name) if is_prefix else self._topic(name)
        if is_prefix:
            return Target(kind, Pattern.PREFIXED, name)
        return Target(kind, Pattern.EVERY) if name == _EVERY else Target(kind, Pattern.LITERAL, name)

    def _topic(self, name: str) -> Target:
        namespace, slash, local = name.rpartition("/")
        try:
            if local == _EVERY:
                # The name of a topic there, to have it held to the rules of names.
                one = TopicName.parse(f"{namespace}{slash}t", self._tenant, self._namespace)
                return Target(ResourceType.TOPIC, Pattern.EVERY, scope=one.namespace_name)
            full = TopicName.parse(name, self._tenant, self._namespace).full
        except InvalidTopicName as error:
            raise InvalidRule(str(error)) from None
        return Target(ResourceType.TOPIC, Pattern.LITERAL, full)

    def _topics_with(self, prefix: str) -> Target:
        if "/" not in prefix:
            prefix = f"{PERSISTENT}{self._home}/{prefix}"
        elif "://" not in prefix:
            prefix = f"{PERSISTENT}{prefix}"
        if not prefix.startswith((PERSISTENT, NON_PERSISTENT)):
            raise InvalidRule(f"no topic's name begins with {prefix[:200]!r}")
        return Target(ResourceType.TOPIC, Pattern.PREFIXED, prefix)

    def _shown(self, rule: Rule) -> Acl | None:
        """The binding that Kafka's tools show for a rule; None if it has no such form."""
        name = None if rule.operation in _PULSAR_ONLY else self._name(rule.target)
        if name is None:
            return None
        target = rule.target
        is_prefix = target.pattern is Pattern.PREFIXED
        return Acl(target.type, name, is_prefix, rule.principal, rule.host, rule.operation, rule.allow)

    def _name(self, target: Target) -> str | None:
        kind, pattern, name, scope = target
        if kind is not ResourceType.TOPIC:
            if scope not in ("", self._home):
                return None
            return _EVERY if pattern is Pattern.EVERY else name
        if pattern is Pattern.EVERY:
            return _EVERY if scope == self._home else f"{scope}/{_EVERY}"
        if pattern is Pattern.LITERAL:
            return TopicName.parse(name).kafka_name(self._tenant, self._namespace)
        own = name.removeprefix(f"{PERSISTENT}{self._home}/")
        return name if own == name or not own or "/" in own else own
