"""Write docs/reference/authorization.md: who may do what, verb by verb.

What each verb asks is `tests/authorization/`, which tests hold against the server; which rule gives a right is asked of
the rule book itself.  So a verb or a right that is new changes the page, and a test fails until it is written again.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from magnetar.broker.security.decisions import Decisions
from magnetar.broker.security.model import CLUSTER, Caller, Operation, Principal, Resource, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "docs" / "reference" / "authorization.md"
ASKED: Final = ROOT / "tests" / "authorization"

_TOPIC: Final = "persistent://public/default/t"
_NAMES: Final = {
    ResourceType.CLUSTER: Resource(ResourceType.CLUSTER, CLUSTER.name),
    ResourceType.TENANT: Resource(ResourceType.TENANT, "public"),
    ResourceType.NAMESPACE: Resource(ResourceType.NAMESPACE, "public/default"),
    ResourceType.TOPIC: Resource(ResourceType.TOPIC, _TOPIC),
    ResourceType.SUBSCRIPTION: Resource(ResourceType.SUBSCRIPTION, "s", _TOPIC),
    ResourceType.TRANSACTIONAL_ID: Resource(ResourceType.TRANSACTIONAL_ID, "x"),
    ResourceType.PIPELINE: Resource(ResourceType.PIPELINE, "p"),
    ResourceType.DELEGATION_TOKEN: Resource(ResourceType.DELEGATION_TOKEN, "i"),
    ResourceType.USER: Resource(ResourceType.USER, "User:bob"),
}
_KAFKA: Final = {
    "topic": Target(ResourceType.TOPIC, Pattern.EVERY, scope="public/default"),
    "group": Target(ResourceType.SUBSCRIPTION, Pattern.EVERY),
    "cluster": Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name),
    "transactional-id": Target(ResourceType.TRANSACTIONAL_ID, Pattern.EVERY),
    "delegation-token": Target(ResourceType.DELEGATION_TOKEN, Pattern.EVERY),
    "user": Target(ResourceType.USER, Pattern.EVERY),
}
_PLAIN: Final = [one for one in Operation if Operation.READ <= one <= Operation.DESCRIBE_TOKENS]

_HEAD: Final = """# Who may do what

<!-- written by tools/authorization_reference.py -->

There is one book of rules. A user of Kafka (`User:alice`) and a role of Pulsar (`alice`) are the same principal, and
get the same answer at every door. How to turn it on is in [operating/authorization.md](../operating/authorization.md).

## How it is decided

1. A super user may do everything.
2. A rule that denies goes before all that allow, whatever their patterns.
3. READ, WRITE, DELETE and ALTER on something include DESCRIBE, and ALTER_CONFIGS includes DESCRIBE_CONFIGS. A denial
   includes nothing else: who may not DESCRIBE may still READ.
4. A role that administers a tenant may do everything to what is in it, but unload a namespace.
5. What no rule is about is denied (allowed with `allow.everyone.if.no.acl.found=true`).

Who is denied does not learn whether the thing exists. Listings leave out what may not be described.

## Names

| an access control list on | means |
|---|---|
| `orders`, literal | the topic `orders` of the namespace of Kafka's clients (`public/default` unless set otherwise) |
| `ord`, prefixed | topics of that namespace whose names begin so |
| `*`, literal | all topics of that namespace, and none of another one |
| `tenant/namespace/orders`, `persistent://tenant/namespace/orders` | that topic |
| `tenant/namespace/*` | all topics of that namespace |
| `tenant/namespace/ord`, prefixed | persistent topics whose full names begin so, in any namespace that fits |
| group `g` | the group, and the subscription `g` of any topic that the principal may read |
| delegation token `ID` | the token of this id |
| user `User:bob` | the delegation tokens that bob owns |

- Partitions follow their topic; a rule cannot be about a single one.
- A star is one only as a whole name, not in a prefix. Users match by case; hosts are exact addresses, or `*`.
- Rules are about names: they outlive topics. A namespace that is deleted takes the rules on it and its topics along.
- A subscription of a topic takes READ on the topic and on the subscription, as a Kafka consumer takes READ on topic and
  group.
- A group is deleted with its offsets in all topics of the namespace of Kafka's clients; one with offsets in other
  namespaces only by who may delete the subscription there.
- `consume` in the namespace of Kafka's clients is READ on every group, too; of a single topic, or elsewhere, it is not:
  a group may span topics that the role may not read.
- A subscription that is granted to roles by name is for these roles, and for users that a list on the group names.
- A pipeline runs programs on the server: it takes ALTER on the cluster, and looking at one takes DESCRIBE. It has the
  rights of who declared it, and no rule has to be about what is called after it: the subscription `pipeline-NAME`,
  transactional ids that begin with `pipeline-NAME:`, groups that begin with `spark-sink-pipeline-NAME:`, and making the
  empty topic `__spark_sink` of the namespace of Kafka's clients.

## The two faces

| Pulsar's tools | are rules | and Kafka's tools show them as |
|---|---|---|
| `produce`, `consume` in a namespace | WRITE, READ on its topics; READ on subscriptions | topics `*`, groups `*` |
| `produce`, `consume` on a topic | WRITE, READ on it; READ on its subscriptions | the topic; not the subscriptions |
| a subscription's roles | READ on it in its namespace | the group |
| `functions`, `sources`, `sinks`, `packages` | kept, and asked for by nothing here | not shown |
| administrators of a tenant, super users | no rules | not shown |

Groups are shown for the namespace of Kafka's clients only: other namespaces' subscriptions have no name there.

Pulsar's tools show what allows WRITE, READ or ALL on all of a namespace or on a topic by its name. Rules that deny,
rules for one host, for a prefix, and for other operations are not shown. A grant replaces what is shown of its role,
and a revocation takes all of that, whoever wrote it.

## Rights

What gives each right that a verb below may ask for: an operation in an access control list on that kind of resource
(for topics one that covers the namespace, where the right is to a namespace), and whether administering the tenant
does. Super users have all of them. The last column of the tables that follow says what a verb that is allowed leaves in
the [audit log](../operating/audit.md); whatever is refused is there, too.

"""


def render() -> str:
    rights = dict.fromkeys(right for _, line, _ in _lines() for right in _split(line))
    rows = ["| right | access control list | tenant's administrator |", "|---|---|---|"]
    rows += [_row(right) for right in sorted(rights) if right != "nothing"]
    parts = [_HEAD, "\n".join(rows), "\n"]
    for title, file in (("Kafka", "kafka"), ("Pulsar", "pulsar"), ("HTTP", "rest")):
        parts.append(f"\n## {title}\n\n| verb | asks | audit log |\n|---|---|---|\n")
        parts += [f"| `{verb}` | {asked} | {told} |\n" for verb, asked, told in _lines(file)]
    return "".join(parts)


def _lines(*files: str) -> Iterator[tuple[str, str, str]]:
    """Of each verb what it asks, and the changes that it leaves in the audit log."""
    for file in files or ("kafka", "pulsar", "rest"):
        for line in (ASKED / f"{file}.txt").read_text().splitlines():
            verb, _, asked = line.rpartition(": ")
            asked, _, told = asked.partition(" > ")
            yield verb, asked.partition(" (")[0], ", ".join(f"`{one}`" for one in _split(told) if one)


def _split(asked: str) -> list[str]:
    return asked.split(", ")


def _row(right: str) -> str:
    word, _, kind = right.partition(" ")
    operation = Operation[word]
    if kind.startswith("any "):
        named = ResourceType(kind.removeprefix("any "))
        given = [f"{named.value}: {one.name}" for one in _PLAIN if _any(one, operation, named)]
        return f"| {right} | {', '.join(given)} | yes |"
    resource = _NAMES[ResourceType(kind)]
    given = []
    for name, target in _KAFKA.items():
        mine = [one for one in _PLAIN if _gives(one, target, operation, resource)]
        given += [f"{name}: {', '.join(one.name for one in mine)}"] if mine else []
    tenants = _Tenants(["ann"])
    admin = _book(tenants).allows(_ANN, operation, resource)
    return f"| {right} | {'; '.join(given) or 'none'} | {'yes' if admin else 'no'} |"


_ANN: Final = Caller(Principal("User", "ann"))


class _Tenants:
    def __init__(self, admins: list[str]) -> None:
        self._admins = admins

    def admin_roles(self, tenant: str) -> list[str]:
        return self._admins

    def is_admin(self, role: str) -> bool:
        return role in self._admins

    def wants_own_names(self, namespace: str) -> bool:
        return False


def _book(tenants: _Tenants, *rules: Rule) -> Decisions:
    book = Decisions([], "public/default", tenants)
    book.change(rules)
    return book


def _gives(one: Operation, target: Target, operation: Operation, resource: Resource) -> bool:
    rules = [Rule("User:ann", one, target)]
    if resource.type is ResourceType.SUBSCRIPTION and target.type is ResourceType.SUBSCRIPTION:
        rules.append(Rule("User:ann", Operation.READ, _KAFKA["topic"]))  # which it takes besides
    return _book(_Tenants([]), *rules).allows(_ANN, operation, resource)


def _any(one: Operation, operation: Operation, kind: ResourceType) -> bool:
    target = Target(kind, Pattern.PREFIXED, _TOPIC)
    return _book(_Tenants([]), Rule("User:ann", one, target)).allows_any(_ANN, operation, kind)


def main() -> None:
    FILE.write_text(render())


if __name__ == "__main__":
    main()
