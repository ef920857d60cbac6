"""Groups from outside: as tools see one or all of them, and as they are stored."""

from collections.abc import Iterable, Iterator, Mapping

from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.group import Group
from magnetar.broker.groups.model import DescribedGroup, GroupState, ListedGroup
from magnetar.broker.groups.offsets import AnyGroup
from magnetar.broker.groups.records import GroupRecord


def described(group_id: str, group: AnyGroup | None) -> DescribedGroup:
    """State and members; GROUP_ID_NOT_FOUND (and Dead) when there is no such group, or it is no classic one."""
    if not isinstance(group, Group):
        return DescribedGroup(GroupError.GROUP_ID_NOT_FOUND, group_id)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        GroupError.NONE,
        group_id,
        group.state,
        group.protocol_type or "",
        (group.protocol_name or "") if stable else "",
        group.described_members(),
    )


def listed(
    names: Iterable[str],
    groups: Mapping[str, AnyGroup],
    records: Mapping[str, GroupRecord],
    states: Iterable[str],
    types: Iterable[str],
) -> list[ListedGroup]:
    """All groups, or those whose state and type are among the names given (in any case)."""
    wanted_states = {name.lower() for name in states}
    wanted_types = {name.lower() for name in types}
    return [
        entry
        for entry in _entries(names, groups, records)
        if (not wanted_states or entry.state.value.lower() in wanted_states)
        and (not wanted_types or entry.group_type in wanted_types)
    ]


def _entries(
    names: Iterable[str], groups: Mapping[str, AnyGroup], records: Mapping[str, GroupRecord]
) -> Iterator[ListedGroup]:
    for name in names:
        group, record = groups.get(name), records.get(name)
        if group is not None:
            yield ListedGroup(name, group.protocol_type or "", group.state, group.group_type)
        elif record is not None:
            yield ListedGroup(name, record.protocol_type, GroupState.EMPTY, record.group_type)
        else:
            yield ListedGroup(name, "", GroupState.EMPTY)


def record_of(group: AnyGroup) -> GroupRecord:
    """What is stored about the group as it is now."""
    empty_since_ms = group.state_since_ms if group.state is GroupState.EMPTY else None
    return GroupRecord(group.protocol_type or "", group.generation, empty_since_ms, group.group_type)


def is_bare_group(group: AnyGroup) -> bool:
    """Whether there is no more of the group than offsets: no protocol, and no members."""
    if not isinstance(group, Group) or group.protocol_type is not None:
        return False
    return not group.members and not group.has_pending_members
