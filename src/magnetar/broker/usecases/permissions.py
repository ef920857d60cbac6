"""Rules in the form of Pulsar's tools: what roles may do in a namespace, with a topic, with a subscription.

`produce` is WRITE.  `consume` is READ, together with every subscription of the topic or of the namespace's topics,
except those granted to roles by name.  A grant replaces what its role had there.  `functions` is FUNCTIONS, the right
to run code; `sources`, `sinks` and `packages` are stored and shown, and no use case requires them.

Pulsar's form cannot show all rules: it leaves out rules that deny, rules for one host, and operations without an
action.  A rule that allows everything is shown as `produce` and `consume`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from magnetar.base.names import TopicName
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.decisions import Decisions
from magnetar.broker.security.errors import InvalidRule, SecurityDisabled
from magnetar.broker.security.model import (
    USER,
    Caller,
    Operation,
    ResourceType,
    namespace_resource,
    tenant_resource,
    topic_resource,
)
from magnetar.broker.security.rule import EVERY_HOST, Pattern, Rule, Target, is_glob, of_user
from magnetar.broker.security.rules import Change as RuleChange
from magnetar.broker.security.rules import Rules
from magnetar.broker.topics.pulsar import PulsarTopics

ACTIONS: Final[Mapping[str, Operation]] = {
    "produce": Operation.WRITE,
    "consume": Operation.READ,
    "functions": Operation.FUNCTIONS,
    "sources": Operation.SOURCES,
    "sinks": Operation.SINKS,
    "packages": Operation.PACKAGES,
}
_ROLE_CHARS_MAX: Final = 1024
_ROLES_MAX: Final = 1024
_SUBSCRIPTION: Final = ResourceType.SUBSCRIPTION


class PermissionCases:
    """See the module's text.  The administrators of a tenant may grant rights inside it."""

    def __init__(
        self, access: AccessControl, rules: Rules | None, namespaces: Namespaces, pulsar_topics: PulsarTopics
    ) -> None:
        self._access = access
        self._rules = rules
        self._namespaces = namespaces
        self._pulsar_topics = pulsar_topics

    # --- shown -------------------------------------------------------------------------------------------------------

    def of_namespace(self, caller: Caller, name: str) -> dict[str, list[str]]:
        """The actions of each role.  Raises NamespaceNotAuthorized, NamespaceNotFound."""
        self._check_shown(caller, name)
        return _actions(self._of(_topics_of(name)))

    def of_topic(self, caller: Caller, topic: TopicName) -> dict[str, list[str]]:
        """The actions of each role on a topic: on the topic itself, and in its namespace.  Raises
        TenantNotAuthorized, NamespaceNotFound, UnknownTopic.
        """
        self._check_topic(caller, topic)
        return _actions([*self._of(_topics_of(topic.namespace_name)), *self._of(_topic(topic))])

    def of_subscriptions(self, caller: Caller, name: str) -> dict[str, list[str]]:
        """The roles to which subscriptions in a namespace were granted.  Raises as `of_namespace`."""
        self._check_shown(caller, name)
        found: dict[str, list[str]] = {}
        for rule in () if self._rules is None else self._rules.decisions.scoped(name):
            if rule.target.pattern is Pattern.LITERAL and (role := _role(rule)) is not None:
                found.setdefault(rule.target.name, []).append(role)
        return found

    # --- granted and revoked -----------------------------------------------------------------------------------------

    async def grant_namespace(self, caller: Caller, name: str, role: str, actions: Sequence[str]) -> None:
        """Raises TenantNotAuthorized, NamespaceNotFound, SecurityDisabled, InvalidRule, MetadataError."""
        async with self._access.record(
            caller, Change.PERMISSION_GRANT, namespace_resource(name), role=role, actions=actions
        ):
            self._check_namespace(caller, name)
            await self._replace(_topics_of(name), name, role, actions, name.partition("/")[0])

    async def revoke_namespace(self, caller: Caller, name: str, role: str) -> None:
        """Take all of a role's rights in a namespace away.  Raises as `grant_namespace`."""
        async with self._access.record(caller, Change.PERMISSION_REVOKE, namespace_resource(name), role=role):
            self._check_namespace(caller, name)
            await self._replace(_topics_of(name), name, role, (), name.partition("/")[0])

    async def grant_topic(self, caller: Caller, topic: TopicName, role: str, actions: Sequence[str]) -> None:
        """Raises TenantNotAuthorized, NamespaceNotFound, UnknownTopic, SecurityDisabled, InvalidRule, MetadataError."""
        async with self._access.record(
            caller, Change.PERMISSION_GRANT, topic_resource(topic.full), role=role, actions=actions
        ):
            self._check_topic(caller, topic)
            await self._replace(_topic(topic), topic.full, role, actions, topic.tenant)

    async def revoke_topic(self, caller: Caller, topic: TopicName, role: str) -> None:
        """Take a role's rights to the topic itself away.  Raises as `grant_topic`."""
        async with self._access.record(
            caller, Change.PERMISSION_REVOKE, topic_resource(topic.full), role=role
        ):
            self._check_topic(caller, topic)
            await self._replace(_topic(topic), topic.full, role, (), topic.tenant)

    async def grant_subscription(
        self, caller: Caller, name: str, subscription: str, roles: Collection[str]
    ) -> None:
        """Let these roles, and no others, use a subscription of a namespace's topics.  Raises as `grant_namespace`."""
        async with self._access.record(
            caller,
            Change.PERMISSION_GRANT,
            namespace_resource(name),
            subscription=subscription,
            roles=list(roles),
        ):
            self._check_namespace(caller, name)
            if not subscription or len(subscription) > _ROLE_CHARS_MAX or len(roles) > _ROLES_MAX:
                raise InvalidRule(f"a subscription has a name, and {_ROLES_MAX} roles at most")
            target = Target(_SUBSCRIPTION, Pattern.LITERAL, subscription, name)
            added = [self._rule(role, Operation.READ, target) for role in roles]
            await self._book().change(lambda book: (added, list(book.of(target))), name.partition("/")[0])

    async def revoke_subscription(self, caller: Caller, name: str, subscription: str, role: str) -> None:
        """Take a subscription away from a role.  When no role is left, all that may consume may use it.

        Raises as `grant_namespace`.
        """
        async with self._access.record(
            caller, Change.PERMISSION_REVOKE, namespace_resource(name), subscription=subscription, role=role
        ):
            self._check_namespace(caller, name)
            target = Target(_SUBSCRIPTION, Pattern.LITERAL, subscription, name)
            await self._book().change(
                lambda book: ((), [one for one in book.of(target) if _role(one) == role])
            )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _check_shown(self, caller: Caller, name: str) -> None:
        self._access.require(caller, Operation.DESCRIBE_CONFIGS, namespace_resource(name))
        self._namespaces.require(name)

    def _check_namespace(self, caller: Caller, name: str) -> None:
        # Not a right to the namespace, which rules can give: a caller that may change settings may not let others, or
        # itself, in.
        self._access.require(caller, Operation.ALTER, tenant_resource(name.partition("/")[0]))
        self._namespaces.require(name)

    def _check_topic(self, caller: Caller, topic: TopicName) -> None:
        # As above.
        self._access.require(caller, Operation.ALTER, tenant_resource(topic.tenant))
        self._pulsar_topics.get(topic)

    def _book(self) -> Rules:
        if self._rules is None:
            raise SecurityDisabled("Authorization is not enabled")
        return self._rules

    def _of(self, target: Target) -> list[Rule]:
        return [] if self._rules is None else list(self._rules.decisions.of(target))

    async def _replace(
        self, topics: Target, scope: str, role: str, actions: Sequence[str], tenant: str
    ) -> None:
        every = Target(_SUBSCRIPTION, Pattern.EVERY, scope=scope)
        unknown = [one for one in actions if one not in ACTIONS]
        if unknown:
            raise InvalidRule(f"there is no action {str(unknown[0])[:100]!r}: {', '.join(ACTIONS)}")
        added = [self._rule(role, ACTIONS[one], topics) for one in actions]
        if "consume" in actions:
            added.append(self._rule(role, Operation.READ, every))

        def decide(book: Decisions) -> RuleChange:
            shown = {Operation.ALL, *ACTIONS.values()}
            had = [*book.of(topics), *book.of(every)]
            return added, [one for one in had if _role(one) == role and one.operation in shown]

        await self._book().change(decide, tenant)

    def _rule(self, role: str, operation: Operation, target: Target) -> Rule:
        book = self._book()
        if not role or len(role) > _ROLE_CHARS_MAX:
            raise InvalidRule(f"a role has a name of {_ROLE_CHARS_MAX} characters at most")
        if is_glob(role) and not book.decisions.with_wildcards:
            raise InvalidRule("a role with a star needs authorizationAllowWildcardsMatching=true")
        return Rule(of_user(role), operation, target, is_role=is_glob(role))


def _topics_of(namespace: str) -> Target:
    return Target(ResourceType.TOPIC, Pattern.EVERY, scope=namespace)


def _topic(name: TopicName) -> Target:
    return Target(ResourceType.TOPIC, Pattern.LITERAL, name.full)


def _role(rule: Rule) -> str | None:
    """The role to which a rule allows something, from any host."""
    kind, _, name = rule.principal.partition(":")
    return name if rule.allow and rule.host == EVERY_HOST and kind == USER else None


def _actions(rules: Iterable[Rule]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for rule in rules:
        role = _role(rule)
        for action, operation in ACTIONS.items():
            both = rule.operation is Operation.ALL and operation in (Operation.READ, Operation.WRITE)
            if role is not None and (rule.operation is operation or both):
                actions = found.setdefault(role, [])
                if action not in actions:
                    actions.append(action)
    return found
