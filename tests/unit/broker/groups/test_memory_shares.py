"""Members of the groups of one principal leave room for those of all others."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import pytest

from magnetar.broker.groups import memory
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.memory import GroupMemory, MembersMemory
from magnetar.broker.groups.model import ConsumerHeartbeatResult, ShareHeartbeat
from magnetar.testing.groups import GroupDriver, viewer
from tests.unit.broker.groups.streams_groups import SMALL

ANN, BOB, EVE = ("User:ann ", "User:bob ", "User:eve ")
FULL: Final = GroupError.COORDINATOR_NOT_AVAILABLE
_MAX: Final = 1_000_000


@pytest.fixture(autouse=True)
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEMBERS_BYTES_MAX", _MAX)


@pytest.fixture
def groups() -> Iterator[GroupDriver]:
    with GroupDriver() as found:
        yield found


def _classic(groups: GroupDriver, owner: str, group_id: str) -> GroupError:
    said = (("range", bytes(4_000)),)
    request = groups.request(group_id, protocols=said, owner=owner, require_known_member_id=False)
    parked = groups.join(request)
    return parked.join.error if parked.joined else GroupError.NONE


def _consumer(groups: GroupDriver, owner: str, group_id: str) -> GroupError:
    names = [f"topic-{number}" for number in range(10)]
    return groups.beat("m", 0, *names, group_id=group_id, owner=owner).error


def _share(groups: GroupDriver, owner: str, group_id: str) -> GroupError:
    names = tuple(f"topic-{number}" for number in range(10))
    request = ShareHeartbeat(group_id, "m", 0, names=names, topics=names, viewer=viewer(owner))

    async def beating() -> ConsumerHeartbeatResult:
        answer = groups.coordinator.sharing.heartbeat(request)
        return await answer if isinstance(answer, Awaitable) else answer

    return groups.wait(beating()).error


def _streams(groups: GroupDriver, owner: str, group_id: str) -> GroupError:
    return groups.stream("m", 0, SMALL, group_id=group_id, owner=owner).error


@pytest.mark.parametrize("join", [_classic, _consumer, _share, _streams])
def test_one_principal_does_not_keep_all_others_from_joining(
    groups: GroupDriver, join: Callable[[GroupDriver, str, str], GroupError]
) -> None:
    """Eight thousand groups of 16 KiB took a client four seconds, and stayed for half an hour without it: no other
    client that said as much of itself could join, nor any once the rest was taken, too.
    """

    def fill(owner: str) -> int:
        count = 0
        while (error := join(groups, owner, f"of {owner}{count}")) is GroupError.NONE:
            count += 1
            assert count < 1000
        assert error is FULL
        return count

    first, second, third = (fill(owner) for owner in (ANN, BOB, EVE))
    assert first > second > third > 1
    used = groups.coordinator._memory.used
    assert _MAX * 3 // 4 < used <= _MAX
    assert join(groups, ANN, "one more") is FULL


def test_a_group_takes_of_the_share_of_whoever_joins_it_while_it_is_empty(groups: GroupDriver) -> None:
    """Also if others have made it: by committing offsets, or by being members before."""
    of = groups.coordinator._memory._of
    groups.stable(group_id="g", owner=ANN)
    assert of.keys() == {ANN}
    before = of[ANN]
    groups.join_new("g", owner=BOB)
    assert of.keys() == {ANN}
    assert of[ANN] > before
    groups.advance(1_000)  # all have failed
    assert not of
    groups.stable(group_id="g", owner=BOB)
    assert of.keys() == {BOB}


def test_a_group_that_changes_its_protocol_stays_its_owners() -> None:
    with GroupDriver() as groups:
        of = groups.coordinator._memory._of
        groups.stable(group_id="g", owner=ANN)
        assert groups.beat("m", 0, "t", owner=BOB).error is GroupError.NONE
        assert of.keys() == {ANN}
        assert of[ANN] == groups.coordinator._memory.used
        groups.beat("m", -1, owner=BOB)
        assert of.keys() == {ANN}
        assert of[ANN] == groups.coordinator._memory.used


def test_clients_that_need_not_log_in_have_all_of_it(groups: GroupDriver) -> None:
    count = 0
    while _classic(groups, "User:ANONYMOUS ", f"g{count}") is GroupError.NONE:
        count += 1
    assert groups.coordinator._memory.used > _MAX - 6_000


def test_what_is_given_back_is_free_for_all() -> None:
    every = MembersMemory()
    one, other = GroupMemory(every), GroupMemory(every)
    one.belongs_to(ANN)
    one.used += _MAX // 2
    assert not one.has_room(1)
    other.belongs_to(BOB)
    other.used += _MAX // 4 - 10_000
    assert other.has_room(10_000)
    assert not other.has_room(10_001)
    one.belongs_to(BOB)
    assert not other.has_room(1)
    one.used = other.used = 0
    assert (every.used, every._of) == (0, {})
