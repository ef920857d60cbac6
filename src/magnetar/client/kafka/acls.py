"""Kafka's access control lists: list, add and remove them (KIP-140, KIP-290)."""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple

from magnetar.client.kafka.cluster import Cluster, error_of, refusal
from magnetar.client.kafka.connection import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from magnetar.client.kafka.errors import KafkaClientError
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from magnetar.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from magnetar.wire.kafka.messages.describe_acls import DescribeAclsRequest

CLUSTER_NAME: Final = "kafka-cluster"


class AclType(IntEnum):
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """`ANY` and `MATCH` are only for filters: `ANY` matches every pattern type, `MATCH` every rule that applies to
    the name.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class AclPermission(IntEnum):
    ANY = 1
    DENY = 2
    ALLOW = 3


class AclRule(NamedTuple):
    """A rule, or a filter of rules, in which `ANY` and None match everything."""

    type: AclType
    name: str | None
    pattern: AclPattern
    principal: str | None
    host: str | None
    operation: AclOperation
    permission: AclPermission


ANY_RULE: Final = AclRule(AclType.ANY, None, AclPattern.ANY, None, None, AclOperation.ANY, AclPermission.ANY)


def list_acls(cluster: Cluster, wanted: AclRule = ANY_RULE) -> list[AclRule]:
    """The rules that match a filter.  Raises NotInTime, Refused."""
    answer = cluster.ask_any_node(DESCRIBE_ACLS, DescribeAclsRequest(*wanted))
    _check("listing rules", answer.error_code, answer.error_message)
    return sorted(_rule(found, one) for found in answer.resources for one in found.acls)


def add_acls(cluster: Cluster, rules: Iterable[AclRule]) -> None:
    """Add rules; existing ones stay.  Raises NotInTime, Refused (for the first rule that cannot be added)."""
    creations = [AclCreation(*rule) for rule in rules]  # type: ignore[arg-type]
    answer = cluster.ask_any_node(CREATE_ACLS, CreateAclsRequest(creations))
    for row, rule in zip(answer.results, creations, strict=True):
        _check(f"adding a rule for {rule.resource_name!r}", row.error_code, row.error_message)


def remove_acls(cluster: Cluster, wanted: Sequence[AclRule]) -> list[AclRule]:
    """Remove the rules that match any of the filters; returns them.  Raises NotInTime, Refused."""
    request = DeleteAclsRequest([DeleteAclsFilter(*one) for one in wanted])
    answer = cluster.ask_any_node(DELETE_ACLS, request)
    removed: set[AclRule] = set()
    for row in answer.filter_results:
        _check("removing rules", row.error_code, row.error_message)
        for one in row.matching_acls:
            _check(f"removing a rule for {one.resource_name!r}", one.error_code, one.error_message)
            removed.add(_rule(one, one))
    return sorted(removed)


def _rule(resource: Any, entry: Any) -> AclRule:
    """A rule in a response.  Raises KafkaClientError if this client does not know its kind."""
    try:
        return AclRule(
            AclType(resource.resource_type),
            resource.resource_name,
            AclPattern(resource.pattern_type),
            entry.principal,
            entry.host,
            AclOperation(entry.operation),
            AclPermission(entry.permission_type),
        )
    except ValueError as error:
        raise KafkaClientError(f"there is a rule that this client does not know: {error}") from None


def _check(what: str, code: int, detail: str | None) -> None:
    if code != ErrorCode.NONE:
        raise refusal(what, error_of(code), detail)
