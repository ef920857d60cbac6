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

All doors use one set of rules. Kafka's user `User:alice` and Pulsar's role `alice` are the same principal, with the
same rights at every door. To turn authorization on, see
[operating/authorization.md](../operating/authorization.md).

## How the server decides

1. A super user may do everything.
2. A rule that denies wins over all rules that allow, whatever their patterns.
3. READ, WRITE, DELETE or ALTER on a resource includes DESCRIBE, and ALTER_CONFIGS includes DESCRIBE_CONFIGS. A denial
   includes nothing else: a principal that is denied DESCRIBE may still have READ.
4. A role that administers a tenant may do everything with what is in the tenant, except unload a namespace.
5. If no rule is about the resource, the server denies. With `allow.everyone.if.no.acl.found=true` it allows.

A refusal does not reveal whether the resource exists. Listings leave out what the client may not describe.

## Names

| an access control list on | means |
|---|---|
| `orders`, literal | the topic `orders` in the namespace of Kafka's clients (`public/default` unless you set another) |
| `ord`, prefixed | topics in that namespace whose names begin with `ord` |
| `*`, literal | all topics in that namespace, and none in another |
| `tenant/namespace/orders`, `persistent://tenant/namespace/orders` | that topic |
| `tenant/namespace/*` | all topics in that namespace |
| `tenant/namespace/ord`, prefixed | persistent topics whose full names begin with this, in all namespaces that match |
| group `g` | the group, and the subscription `g` of every topic that the principal may read |
| delegation token `ID` | the token with this id |
| user `User:bob` | the delegation tokens that bob owns |

- A rule on a topic is for all its partitions; no rule can be about a single partition.
- `*` means all only as a whole name, not in a prefix. Upper and lower case in users' names matter. A host is an exact
  address, or `*`.
- Rules are about names, so they stay when you delete a topic. When you delete a namespace, the server also deletes the
  rules on it and on its topics.
- Consuming a topic requires READ on the topic and on the subscription, as a Kafka consumer needs READ on topic and
  group.
- A subscription in another namespace than that of Kafka's clients is a group, too, for clients that may describe it
  there, or the cluster. For all others it does not exist.
- Deleting a group deletes its offsets in all topics in the namespace of Kafka's clients. Offsets in another namespace
  stay if the client may not delete the subscription there.
- `consume` in the namespace of Kafka's clients includes READ on every group. On a single topic, or in another
  namespace, it does not, because a group may include topics that the role may not read.
- If you grant a subscription to roles by name, only these roles may use it, and users that an access control list on
  the group names.
- A pipeline runs programs on the server, so declaring one requires ALTER on the cluster, and looking at one DESCRIBE.
  It has the rights of the principal that declared it. It needs no rule for what has its name: the subscription
  `pipeline-NAME`, transactional ids that begin with `pipeline-NAME:`, groups that begin with
  `spark-sink-pipeline-NAME:`, and creating the empty topic `__spark_sink` in the namespace of Kafka's clients.
- A replicator runs no program of its user's, so adding one requires no right to the cluster. It has the rights of the
  principal that added its configuration, and needs no rule for its subscription, `pulsar.repl.TYPE.REGION`.

## Pulsar's and Kafka's view of the rules

| Pulsar's tools say | which are the rules | and Kafka's tools show |
|---|---|---|
| `produce`, `consume` in a namespace | WRITE, READ on its topics; READ on subscriptions | topics `*`, groups `*` |
| `produce`, `consume` on a topic | WRITE, READ on it; READ on its subscriptions | the topic; not the subscriptions |
| a subscription's roles | READ on it in its namespace | the group |
| `functions` in a namespace | FUNCTIONS on it | nothing |
| `functions` on a topic, `sources`, `sinks`, `packages` | stored, and never needed | nothing |
| administrators of a tenant, super users | no rules | nothing |

Kafka's tools show groups in the namespace of Kafka's clients only, because other namespaces' subscriptions have no name
in Kafka.

Pulsar's tools show the rules that allow WRITE, READ or ALL on a whole namespace or on a named topic. They do not show
rules that deny, rules for one host, for a prefix, or for other operations. A grant replaces the role's rules that
Pulsar's tools show, and a revocation deletes all of these, also those that other users have created.

## Rights

Each row is a right that an operation below may require. The second column says which entry of an access control list
gives it (for a namespace: a list on topics that covers the namespace), the third whether the administrators of the
tenant have it. Super users have all rights. In the tables after this one, the last column is what an allowed operation
writes to the [audit log](../operating/audit.md); refusals are there, too.

"""


def render() -> str:
    rights = dict.fromkeys(right for _, line, _ in _lines() for right in _split(line))
    rows = ["| right | access control list | tenant's administrator |", "|---|---|---|"]
    rows += [_row(right) for right in sorted(rights) if right != "nothing"]
    parts = [_HEAD, "\n".join(rows), "\n"]
    for title, file in (("Kafka", "kafka"), ("Pulsar", "pulsar"), ("HTTP", "rest")):
        parts.append(f"\n## {title}\n\n| operation | requires | audit log |\n|---|---|---|\n")
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
