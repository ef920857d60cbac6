"""Which access control lists give which right, by the rule book itself; and the clients that the matrix asks as.

A *need* is what a verb cannot do without: a right, or several of which one is enough.  Of each verb there are a client
that has what it needs and nothing else, and for each need one that has all but that.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from magnetar.broker.security.authorizer import OPERATIONS
from magnetar.broker.security.decisions import Decisions
from magnetar.broker.security.model import (
    ANONYMOUS,
    CLUSTER,
    USER,
    Caller,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.wire.kafka.messages.create_acls import AclCreation

Right = tuple[Operation, ResourceType]
Need = frozenset[Right]
Grant = tuple[Operation, ResourceType]  # a list on all that there is of a type

ASKED: Final = Path(__file__).parents[2] / "authorization"
TENANT: Final = "public"
NAMESPACE: Final = "public/default"
TOPIC: Final = "persistent://public/default/t"
SUPER: Final = "admin"
BOSS: Final = "boss"  # administers the tenant
STRANGER: Final = "stranger"  # administers another one
OTHER_TENANT: Final = "acme"

_LITERAL, _ALLOW = 3, 3  # as Kafka numbers them
# How Kafka's tools write a list on all of a type, and what it is in the book.
_LISTS: Final[Mapping[ResourceType, tuple[int, str, Target]]] = {
    ResourceType.TOPIC: (2, "*", Target(ResourceType.TOPIC, Pattern.EVERY, scope=NAMESPACE)),
    ResourceType.SUBSCRIPTION: (3, "*", Target(ResourceType.SUBSCRIPTION, Pattern.EVERY)),
    ResourceType.CLUSTER: (4, CLUSTER.name, Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name)),
    ResourceType.TRANSACTIONAL_ID: (5, "*", Target(ResourceType.TRANSACTIONAL_ID, Pattern.EVERY)),
    ResourceType.DELEGATION_TOKEN: (6, "*", Target(ResourceType.DELEGATION_TOKEN, Pattern.EVERY)),
    ResourceType.USER: (7, "*", Target(ResourceType.USER, Pattern.EVERY)),
}
EVERY_GRANT: Final = frozenset(
    (operation, kind)
    for kind, operations in {
        **OPERATIONS,
        ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
        ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
        ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
    }.items()
    for operation in operations
)
_READS_TOPIC: Final = (Operation.READ, ResourceType.TOPIC)


class Line(NamedTuple):
    """What `tests/authorization` says of a verb.  `any_named` are rights to some resource, whichever; `status` is that
    of a refusal over REST.
    """

    rights: tuple[Right, ...]
    any_named: frozenset[Right]
    status: int
    changes: bool


def lines(file: str) -> dict[str, Line]:
    return dict(map(_line, (ASKED / f"{file}.txt").read_text().splitlines()))


def _line(text: str) -> tuple[str, Line]:
    verb, _, said = text.rpartition(": ")
    said, _, changes = said.partition(" > ")
    said, _, status = said.partition(" (")
    rights, any_named = [], set()
    for one in said.split(", ") if said != "nothing" else ():
        word, _, kind = one.partition(" ")
        right = Operation[word], ResourceType(kind.removeprefix("any "))
        rights.append(right)
        if kind.startswith("any "):
            any_named.add(right)
    return verb, Line(tuple(rights), frozenset(any_named), int(status.rstrip(")") or 0), bool(changes))


class Client(NamedTuple):
    """One that asks: what it is in a verb's row, and its name; without a name it shows none."""

    label: str
    name: str


class _Tenants:
    def admin_roles(self, tenant: str) -> Collection[str]:
        return {TENANT: (BOSS,), OTHER_TENANT: (STRANGER,)}.get(tenant, ())

    def is_admin(self, role: str) -> bool:
        return role in (BOSS, STRANGER)

    def wants_own_names(self, namespace: str) -> bool:
        return False


class Book:
    """The rule book of the server, and the clients it is about.  `subscription` is one of the topic, or a group."""

    def __init__(self, subscription: Resource) -> None:
        self._decisions = Decisions([str(Principal(USER, SUPER))], NAMESPACE, _Tenants())
        self._names: dict[frozenset[Grant], str] = {}
        self._givers: dict[Right, frozenset[Grant]] = {}
        self._resources = {
            ResourceType.CLUSTER: CLUSTER,
            ResourceType.TENANT: Resource(ResourceType.TENANT, TENANT),
            ResourceType.NAMESPACE: Resource(ResourceType.NAMESPACE, NAMESPACE),
            ResourceType.TOPIC: Resource(ResourceType.TOPIC, TOPIC),
            ResourceType.SUBSCRIPTION: subscription,
            ResourceType.TRANSACTIONAL_ID: Resource(ResourceType.TRANSACTIONAL_ID, "x"),
            ResourceType.PIPELINE: Resource(ResourceType.PIPELINE, "s"),
            ResourceType.DELEGATION_TOKEN: Resource(ResourceType.DELEGATION_TOKEN, "i"),
            ResourceType.USER: Resource(ResourceType.USER, "User:bob"),
        }

    def allows(self, name: str, right: Right, *, any_named: bool = False, to: Resource | None = None) -> bool:
        """Whether a client may, to whichever resource, or `to` another one than the tests' own."""
        operation, kind = right
        caller = Caller(Principal(USER, name) if name else ANONYMOUS, "127.0.0.1")
        if any_named:
            return self._decisions.allows_any(caller, operation, kind)
        return self._decisions.allows(caller, operation, to or self._resources[kind])

    def clients(self, needs: Iterable[Need]) -> Iterator[Client]:
        """Those that a verb with these needs is asked as."""
        needs = list(needs)
        yield Client("the super user", SUPER)
        yield Client("the tenant's administrator", BOSS)
        yield Client("another tenant's administrator", STRANGER)
        enough = self._enough(needs)
        if needs and enough is not None:
            name = self._named(enough)
            assert all(any(self.allows(name, right) for right in need) for need in needs)
            yield Client("who has that and nothing else", name)
        for need in needs:
            name = self._named(EVERY_GRANT.difference(*map(self._giving, need)))
            assert not any(self.allows(name, right) for right in need)
            yield Client(f"who has all but {_text(need)}", name)

    def lists(self) -> list[AclCreation]:
        """What all clients that there are have been granted."""
        return [
            AclCreation(_LISTS[kind][0], _LISTS[kind][1], _LITERAL, f"{USER}:{name}", "*", operation, _ALLOW)
            for grants, name in self._names.items()
            for operation, kind in grants
        ]

    # --- inside ------------------------------------------------------------------------------------------------------

    def _named(self, grants: frozenset[Grant]) -> str:
        if grants not in self._names:
            self._names[grants] = name = f"client-{len(self._names)}"
            self._decisions.change(_rules(name, grants))
        return self._names[grants]

    def _giving(self, right: Right) -> frozenset[Grant]:
        """The lists of which each gives the right, beside what else it takes."""
        if right not in self._givers:
            besides = self._besides(right)
            self._givers[right] = frozenset(
                one for one in EVERY_GRANT - besides if self._is_given({one, *besides}, right)
            )
        return self._givers[right]

    def _besides(self, right: Right) -> frozenset[Grant]:
        """Who reads a subscription of a topic reads the topic."""
        is_of_topic = bool(self._resources[right[1]].topic)
        return frozenset({_READS_TOPIC}) if is_of_topic else frozenset()

    def _is_given(self, grants: Collection[Grant], right: Right) -> bool:
        decisions = Decisions([], NAMESPACE, _Tenants())
        decisions.change(_rules("ann", grants))
        return decisions.allows(
            Caller(Principal(USER, "ann"), "127.0.0.1"), right[0], self._resources[right[1]]
        )

    def _enough(self, needs: Iterable[Need]) -> frozenset[Grant] | None:
        """The least that lists can give for these; None where they cannot."""
        found: set[Grant] = set()
        for need in needs:
            options = [
                (one[0] is not right[0], one[0], one[1].value, one, right)
                for right in need
                for one in self._giving(right)
            ]
            if not options:
                return None
            *_, grant, right = min(options, key=lambda option: option[:3])
            found |= {grant, *self._besides(right)}
        return frozenset(found)


def _rules(name: str, grants: Iterable[Grant]) -> list[Rule]:
    return [Rule(f"{USER}:{name}", operation, _LISTS[kind][2]) for operation, kind in grants]


def _text(need: Need) -> str:
    return " or ".join(sorted(f"{operation.name} {kind.value}" for operation, kind in need))
