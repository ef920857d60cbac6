"""Access control lists with Kafka's numbers.  A number without a meaning is refused (`InvalidRule`)."""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from magnetar.broker.security.errors import InvalidRule
from magnetar.broker.security.model import Operation, ResourceType
from magnetar.broker.usecases.acls import Acl, AclFilter, Match

_ANY: Final = 1
_ALL: Final = 2
_LAST_OPERATION: Final = 14
_TYPES: Final = {
    2: ResourceType.TOPIC,
    3: ResourceType.SUBSCRIPTION,
    4: ResourceType.CLUSTER,
    5: ResourceType.TRANSACTIONAL_ID,
    6: ResourceType.DELEGATION_TOKEN,
    7: ResourceType.USER,
}
_NUMBERS: Final = {kind: number for number, kind in _TYPES.items()}
_OPERATIONS: Final = {number: Operation(number) for number in range(_ALL, _LAST_OPERATION + 1)}
_PREFIXES: Final = {3: False, 4: True}
_PERMISSIONS: Final = {2: False, 3: True}
_MATCHES: Final = {1: Match.ANY, 2: Match.MATCH, 3: Match.LITERAL, 4: Match.PREFIXED}
_T = TypeVar("_T")


def read_acl(creation: Any) -> Acl:
    """The access control list to create.  Raises InvalidRule."""
    return Acl(
        _meant(_TYPES, creation.resource_type, "resource type"),
        creation.resource_name,
        _meant(_PREFIXES, creation.resource_pattern_type, "pattern type"),
        creation.principal,
        creation.host,
        _meant(_OPERATIONS, creation.operation, "operation"),
        _meant(_PERMISSIONS, creation.permission_type, "permission type"),
    )


def read_filter(wanted: Any) -> AclFilter:
    """The filter of a request.  Raises InvalidRule."""
    return AclFilter(
        _any_or(_TYPES, wanted.resource_type_filter, "resource type"),
        wanted.resource_name_filter,
        _meant(_MATCHES, wanted.pattern_type_filter, "pattern type"),
        wanted.principal_filter,
        wanted.host_filter,
        _any_or(_OPERATIONS, wanted.operation, "operation"),
        _any_or(_PERMISSIONS, wanted.permission_type, "permission type"),
    )


def resource_of(acl: Acl) -> tuple[int, str, int]:
    """Resource type, name and pattern type, in Kafka's form."""
    return _NUMBERS[acl.type], acl.name, 4 if acl.is_prefix else 3


def entry_of(acl: Acl) -> tuple[str, str, int, int]:
    """Principal, host, operation and permission type."""
    return acl.principal, acl.host, int(acl.operation), 3 if acl.allow else 2


def _meant(table: Mapping[int, _T], number: int, what: str) -> _T:
    if number not in table:
        raise InvalidRule(f"{number} is no {what} that may stand here")
    return table[number]


def _any_or(table: Mapping[int, _T], number: int, what: str) -> _T | None:
    return None if number == _ANY else _meant(table, number, what)
