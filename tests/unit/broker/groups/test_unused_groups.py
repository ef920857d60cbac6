"""Groups that are left without members and offsets are forgotten, and soon if they are many."""

from collections.abc import Iterator

import pytest

from magnetar.broker.groups import expiry
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import OffsetToCommit
from magnetar.testing.groups import GroupDriver


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupDriver]:
    monkeypatch.setattr(expiry, "UNUSED_MAX", 3)
    with GroupDriver() as found:
        yield found


def _listed(groups: GroupDriver) -> list[str]:
    return sorted(one.group_id for one in groups.coordinator.listed())


def _left(groups: GroupDriver, *names: str) -> None:
    """Groups that have had a member."""
    for name in names:
        groups.stable(group_id=name)
    groups.advance(60)  # their sessions end
    groups.wait(groups.coordinator._upkeep.idle())


def test_many_unused_groups_are_forgotten_at_once(groups: GroupDriver) -> None:
    """Three thousand came in a second over one connection, 2 KB of memory each, and stayed for ten minutes."""
    _left(groups, "a", "b")
    assert _listed(groups) == ["a", "b"], "a tool may look at an empty group for a while"
    _left(groups, "c")
    assert _listed(groups) == []
    _left(groups, "d")
    assert _listed(groups) == ["d"]


def test_groups_with_offsets_are_used(groups: GroupDriver) -> None:
    for name in "abc":
        assert groups.commit(OffsetToCommit("t", 0, 7), group_id=name) == [GroupError.NONE]
        groups.stable(group_id=name)
    groups.advance(60)
    _left(groups, "d", "e")
    assert _listed(groups) == ["a", "b", "c", "d", "e"], "two are unused"
    _left(groups, "f")
    assert _listed(groups) == ["a", "b", "c"]
    assert groups.committed("t", 0, "a") == 7
