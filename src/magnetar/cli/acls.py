"""`magnetar acls`: Kafka's access control lists, with the options of `kafka-acls`."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, NamedTuple

import typer

from magnetar.base.errors import ConfigError
from magnetar.cli.acl_words import OPERATIONS, PATTERNS, PERMISSIONS, TYPES
from magnetar.cli.output import Output, OutputOption, print_json, print_table
from magnetar.cli.reaching import with_cluster
from magnetar.client.kafka.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPattern,
    AclPermission,
    AclRule,
    AclType,
    add_acls,
    list_acls,
    remove_acls,
)
from magnetar.client.kafka.cluster import Cluster

app = typer.Typer(help="List, add and remove Kafka's access rules.", rich_markup_mode=None)

_EVERY_HOST: Final = "*"
_CONFIGS: Final = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})
_MANAGED: Final = frozenset({AclOperation.CREATE, AclOperation.ALTER, AclOperation.DESCRIBE}) | _CONFIGS
_OF_TYPE: Final[Mapping[AclType, frozenset[AclOperation]]] = {
    AclType.TOPIC: _MANAGED | {AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE},
    AclType.GROUP: _CONFIGS | {AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE},
    AclType.CLUSTER: _MANAGED | {AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE},
    AclType.TRANSACTIONAL_ID: frozenset({AclOperation.WRITE, AclOperation.DESCRIBE}),
    AclType.DELEGATION_TOKEN: frozenset({AclOperation.DESCRIBE}),
    AclType.USER: frozenset({AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS}),
}

Names = list[str] | None
Topic = Annotated[Names, typer.Option("--topic", metavar="NAME", help="A topic; * means every topic.")]
Group = Annotated[
    Names, typer.Option("--group", metavar="NAME", help="A group or a subscription; * means every one.")
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
TransactionalId = Annotated[
    Names, typer.Option("--transactional-id", metavar="ID", help="A transactional id.")
]
DelegationToken = Annotated[
    Names, typer.Option("--delegation-token", metavar="ID", help="A delegation token, by its id.")
]
UserPrincipal = Annotated[
    Names, typer.Option("--user-principal", metavar="User:NAME", help="A user, for whom tokens are made.")
]
Pattern = Annotated[
    str,
    typer.Option("--resource-pattern-type", metavar="TYPE", help="literal or prefixed [literal]."),
]
FilterPattern = Annotated[
    str,
    typer.Option(
        "--resource-pattern-type",
        metavar="TYPE",
        help="literal, prefixed, match (all that is about the name) or any [literal].",
    ),
]
Operations = Annotated[
    Names,
    typer.Option("--operation", metavar="NAME", help="Read, Write, Create, ..., All [All]."),
]
Allow = Annotated[
    Names, typer.Option("--allow-principal", metavar="User:NAME", help="The principal that may do this.")
]
Deny = Annotated[
    Names, typer.Option("--deny-principal", metavar="User:NAME", help="The principal that may not do this.")
]
AllowHost = Annotated[
    Names, typer.Option("--allow-host", metavar="HOST", help="The host from which they may [every host].")
]
DenyHost = Annotated[
    Names, typer.Option("--deny-host", metavar="HOST", help="The host from which they may not [every host].")
]
Producer = Annotated[
    bool, typer.Option("--producer", help="All that a producer needs for --topic and --transactional-id.")
]
Consumer = Annotated[
    bool, typer.Option("--consumer", help="All that a consumer needs for --topic and --group.")
]
Idempotent = Annotated[
    bool, typer.Option("--idempotent", help="With --producer: the producer is idempotent.")
]


class Resource(NamedTuple):
    type: AclType
    name: str


@app.callback()
def root() -> None:
    """List, add and remove Kafka's access rules."""


@app.command("list")
@with_cluster
def list_rules(
    cluster: Cluster,
    topic: Topic = None,
    group: Group = None,
    of_cluster: OfCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    pattern: FilterPattern = "literal",
    principal: Annotated[
        Names, typer.Option("--principal", metavar="User:NAME", help="Only rules for these principals.")
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """List all rules, or those for the named resources."""
    about = _resources(topic, group, of_cluster, transactional_id, delegation_token, user_principal)
    found: set[AclRule] = set()
    for one in _filters(about, _pattern(pattern)):
        for each in [one._replace(principal=who) for who in principal or ()] or [one]:
            found.update(list_acls(cluster, each))
    _show(sorted(found), output)


@app.command()
@with_cluster
def add(
    cluster: Cluster,
    topic: Topic = None,
    group: Group = None,
    of_cluster: OfCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    pattern: Pattern = "literal",
    operation: Operations = None,
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Add rules: one for each named principal, host, operation and resource."""
    if not allow_principal and not deny_principal:
        raise ConfigError("say who: --allow-principal or --deny-principal, such as User:alice")
    about = _resources(topic, group, of_cluster, transactional_id, delegation_token, user_principal)
    rights = _rights(about, operation, producer, consumer, idempotent)
    rules = _rules(rights, _made_pattern(pattern), allow_principal, deny_principal, allow_host, deny_host)
    add_acls(cluster, rules)
    _show(sorted(rules), output)


@app.command()
@with_cluster
def remove(
    cluster: Cluster,
    topic: Topic = None,
    group: Group = None,
    of_cluster: OfCluster = False,
    transactional_id: TransactionalId = None,
    delegation_token: DelegationToken = None,
    user_principal: UserPrincipal = None,
    pattern: FilterPattern = "literal",
    operation: Operations = None,
    allow_principal: Allow = None,
    deny_principal: Deny = None,
    allow_host: AllowHost = None,
    deny_host: DenyHost = None,
    producer: Producer = False,
    consumer: Consumer = False,
    idempotent: Idempotent = False,
    force: Annotated[
        bool, typer.Option("--force", help="Without a principal: all rules for the named resources.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Remove the rules that the same options would add, or, with --force, all rules for the named resources."""
    about = _resources(topic, group, of_cluster, transactional_id, delegation_token, user_principal)
    if not about:
        raise ConfigError("say of what: --topic, --group, --cluster, --transactional-id, ...")
    if allow_principal or deny_principal:
        rights = _rights(about, operation, producer, consumer, idempotent)
        wanted = _rules(rights, _pattern(pattern), allow_principal, deny_principal, allow_host, deny_host)
    elif operation or allow_host or deny_host or producer or consumer:
        raise ConfigError(
            "say whose rules: --allow-principal or --deny-principal, or --force for all of them"
        )
    elif force:
        wanted = _filters(about, _pattern(pattern))
    else:
        raise ConfigError("this takes every rule that is about what is named: say --force, or whose rules")
    removed = remove_acls(cluster, wanted)
    _show(removed, output)
    if not removed:
        print("there was no such rule", file=sys.stderr)


# --- what the words stand for -------------------------------------------------------------------------------------


def _resources(
    topics: Names, groups: Names, of_cluster: bool, transactional_ids: Names, tokens: Names, users: Names
) -> list[Resource]:
    named = (
        (AclType.TOPIC, topics),
        (AclType.GROUP, groups),
        (AclType.CLUSTER, [CLUSTER_NAME] if of_cluster else None),
        (AclType.TRANSACTIONAL_ID, transactional_ids),
        (AclType.DELEGATION_TOKEN, tokens),
        (AclType.USER, users),
    )
    return [Resource(kind, name) for kind, names in named for name in dict.fromkeys(names or ())]


def _rights(
    about: Sequence[Resource], operations: Names, producer: bool, consumer: bool, idempotent: bool
) -> list[tuple[Resource, AclOperation]]:
    if not producer and not consumer:
        if not about:
            raise ConfigError("say of what: --topic, --group, --cluster, --transactional-id, ...")
        if idempotent:
            raise ConfigError("--idempotent goes with --producer")
        wanted = [_operation(one) for one in operations or ["All"]]
        for one in about:
            for operation in wanted:
                if operation is not AclOperation.ALL and operation not in _OF_TYPE[one.type]:
                    has = ", ".join(OPERATIONS[each] for each in sorted(_OF_TYPE[one.type]))
                    raise ConfigError(
                        f"{OPERATIONS[operation]} is nothing that {_kind(one.type)} has: it has {has}"
                    )
        return [(one, operation) for one in about for operation in wanted]
    if operations:
        raise ConfigError("--producer and --consumer say which operations: leave --operation out")
    kinds = {one.type for one in about}
    allowed = {AclType.TOPIC}
    allowed |= {AclType.TRANSACTIONAL_ID} if producer else set()
    allowed |= {AclType.GROUP} if consumer else set()
    if AclType.TOPIC not in kinds or (consumer and AclType.GROUP not in kinds):
        raise ConfigError("--producer needs a --topic, and --consumer a --topic and a --group")
    if kinds - allowed:
        raise ConfigError(
            f"{_kind(min(kinds - allowed))} is nothing for --producer or --consumer: leave it out"
        )
    rights = []
    for one in about:
        if one.type is AclType.TOPIC:
            both = [AclOperation.WRITE, AclOperation.CREATE] if producer else []
            both += [AclOperation.READ] if consumer else []
            rights += [(one, operation) for operation in (*both, AclOperation.DESCRIBE)]
        elif one.type is AclType.TRANSACTIONAL_ID:
            rights += [(one, AclOperation.WRITE), (one, AclOperation.DESCRIBE)]
        else:
            rights.append((one, AclOperation.READ))
    if idempotent:
        if not producer:
            raise ConfigError("--idempotent goes with --producer")
        rights.append((Resource(AclType.CLUSTER, CLUSTER_NAME), AclOperation.IDEMPOTENT_WRITE))
    return rights


def _rules(
    rights: Iterable[tuple[Resource, AclOperation]],
    pattern: AclPattern,
    allow: Names,
    deny: Names,
    allow_hosts: Names,
    deny_hosts: Names,
) -> list[AclRule]:
    if (allow_hosts and not allow) or (deny_hosts and not deny):
        raise ConfigError("--allow-host is for --allow-principal, and --deny-host for --deny-principal")
    who = [
        (principal, host, permission)
        for principals, hosts, permission in (
            (allow, allow_hosts, AclPermission.ALLOW),
            (deny, deny_hosts, AclPermission.DENY),
        )
        for principal in principals or ()
        for host in hosts or (_EVERY_HOST,)
    ]
    for principal, _, _ in who:
        kind, colon, name = principal.partition(":")
        if not kind or not colon or not name:
            raise ConfigError(f"{principal[:100]!r} is no principal: it looks like User:alice")
    rules = {
        AclRule(one.type, one.name, _pattern_of(one, pattern), principal, host, operation, permission)
        for one, operation in rights
        for principal, host, permission in who
    }
    return sorted(rules)


def _filters(about: Sequence[Resource], pattern: AclPattern) -> list[AclRule]:
    if not about:
        about = [Resource(AclType.ANY, "")]
        pattern = AclPattern.ANY
    return [
        AclRule(
            one.type,
            one.name or None,
            _pattern_of(one, pattern),
            None,
            None,
            AclOperation.ANY,
            AclPermission.ANY,
        )
        for one in about
    ]


def _pattern_of(resource: Resource, pattern: AclPattern) -> AclPattern:
    """The pattern type for a resource: the cluster's name is always literal."""
    is_made = pattern in (AclPattern.LITERAL, AclPattern.PREFIXED)
    return AclPattern.LITERAL if resource.type is AclType.CLUSTER and is_made else pattern


def _pattern(text: str) -> AclPattern:
    for one, word in PATTERNS.items():
        if word == text.lower():
            return one
    raise ConfigError(f"--resource-pattern-type is literal, prefixed, match or any, not {text[:50]!r}")


def _made_pattern(text: str) -> AclPattern:
    pattern = _pattern(text)
    if pattern in (AclPattern.ANY, AclPattern.MATCH):
        raise ConfigError(f"a rule is literal or prefixed, and {text} is for finding some")
    return pattern


def _operation(text: str) -> AclOperation:
    wanted = text.replace("_", "").replace("-", "").lower()
    words = {word: one for one, word in OPERATIONS.items() if one is not AclOperation.ANY}
    for word, one in words.items():
        if word.lower() == wanted:
            return one
    there = ", ".join(words)
    raise ConfigError(f"there is no operation {text[:50]!r}: there is {there}")


# --- showing ------------------------------------------------------------------------------------------------------


def _kind(one: AclType) -> str:
    return f"a {TYPES[one].replace('_', ' ')}"


def _show(rules: Sequence[AclRule], output: Output) -> None:
    if output is Output.JSON:
        print_json([_fields(one) for one in rules])
        return
    columns = ("permission", "principal", "host", "operation", "type", "pattern", "name")
    print_table(columns, [[_fields(one)[column] for column in columns] for one in rules])


def _fields(rule: AclRule) -> dict[str, str]:
    return {
        "type": TYPES[rule.type],
        "name": rule.name or "",
        "pattern": PATTERNS[rule.pattern],
        "principal": rule.principal or "",
        "host": rule.host or "",
        "operation": OPERATIONS[rule.operation],
        "permission": PERMISSIONS[rule.permission],
    }
