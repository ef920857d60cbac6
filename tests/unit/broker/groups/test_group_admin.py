"""Describing, listing and deleting groups, and what a restart leaves of them."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import EntryCorrupt
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import DescribedMember, GroupState, ListedGroup, OffsetToCommit
from magnetar.broker.groups.records import GroupRecord, read_records, record_path
from magnetar.broker.groups.subscription import subscribed_topics
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey
from magnetar.testing.groups import GroupDriver, subscription


def test_a_stable_group_is_described_with_metadata_and_assignments() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable(1, instance_ids=["i"])
        described = groups.coordinator.describe("g")
        assert (described.error, described.state) == (GroupError.NONE, GroupState.STABLE)
        assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
        assignment = leader.member_id.encode()
        assert described.members == (
            DescribedMember(leader.member_id, "i", "client", "/127.0.0.1", subscription("t"), assignment),
        )


def test_a_group_on_its_way_is_described_without_them() -> None:
    with GroupDriver() as groups:
        groups.join_new()
        described = groups.coordinator.describe("g")
        assert described.state is GroupState.PREPARING_REBALANCE
        assert described.protocol_name == ""
        assert [(member.metadata, member.assignment) for member in described.members] == [(b"", b"")]


def test_a_group_that_does_not_exist_is_dead_and_not_found() -> None:
    with GroupDriver() as groups:
        described = groups.coordinator.describe("g")
        assert (described.error, described.state) == (GroupError.GROUP_ID_NOT_FOUND, GroupState.DEAD)


def test_groups_are_listed_by_state_and_type_in_any_case() -> None:
    with GroupDriver() as groups:
        groups.stable(group_id="active")
        groups.commit(OffsetToCommit("t", 0, 1), group_id="simple")
        active = ListedGroup("active", "consumer", GroupState.STABLE)
        simple = ListedGroup("simple", "", GroupState.EMPTY)
        listed = groups.coordinator.listed
        assert sorted(listed(), key=lambda group: group.group_id) == [active, simple]
        assert listed(states=["STABLE"]) == [active]
        assert listed(states=["empty", "dead"]) == [simple]
        assert listed(states=["nonsense"]) == []
        assert len(listed(types=["Classic"])) == 2
        assert listed(types=["consumer"]) == []
        assert listed(states=["Stable"], types=["share"]) == []


def test_a_restart_leaves_the_group_empty_with_its_type_offsets_and_generation() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.commit(OffsetToCommit("t", 0, 5), member_id=leader.member_id, generation=1)
        groups.restart()
        assert groups.coordinator.listed() == [ListedGroup("g", "consumer", GroupState.EMPTY)]
        assert groups.heartbeat(leader) is GroupError.UNKNOWN_MEMBER_ID
        stale = groups.commit(OffsetToCommit("t", 0, 1), member_id=leader.member_id, generation=1)
        assert stale == [GroupError.UNKNOWN_MEMBER_ID]
        assert groups.join(groups.request("g", leader.member_id)).join.error is GroupError.UNKNOWN_MEMBER_ID
        (again,) = groups.stable()
        assert again.generation == 2
        assert groups.committed("t", 0) == 5


def test_rebalances_of_a_living_group_cost_no_writes() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        before = groups.store.commit_count
        for _ in range(5):
            leader = groups.join(groups.request("g", leader.member_id)).join
            groups.synced([leader])
        assert groups.store.commit_count == before


def test_a_store_that_fails_does_not_stop_a_group_from_becoming_stable() -> None:
    with GroupDriver() as groups:
        groups.store.fail_next = 1
        (leader,) = groups.stable()
        assert groups.heartbeat(leader) is GroupError.NONE


def test_an_empty_group_is_deleted_with_its_offsets_for_good() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.commit(OffsetToCommit("t", 0, 5), member_id=leader.member_id, generation=1)
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.NON_EMPTY_GROUP
        groups.leave(leader.member_id)
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.GROUP_ID_NOT_FOUND
        groups.restart()
        assert groups.coordinator.listed() == []
        assert groups.committed("t", 0) is None


def test_a_deletion_that_fails_leaves_the_group_as_it_was() -> None:
    with GroupDriver() as groups:
        (leader,) = groups.stable()
        groups.commit(OffsetToCommit("t", 0, 5), member_id=leader.member_id, generation=1)
        groups.leave(leader.member_id)
        groups.store.fail_next = 1
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.COORDINATOR_NOT_AVAILABLE
        assert groups.coordinator.listed() == [ListedGroup("g", "consumer", GroupState.EMPTY)]
        assert groups.committed("t", 0) == 5


def test_a_pending_member_of_a_deleted_group_is_forgotten() -> None:
    with GroupDriver() as groups:
        member_id = groups.new_id()
        assert groups.wait(groups.coordinator.delete("g")) is GroupError.NONE
        assert groups.join(groups.request("g", member_id)).join.error is GroupError.UNKNOWN_MEMBER_ID
        groups.advance(60.0)
        assert groups.coordinator.listed() == []


def test_ten_thousand_stored_groups_do_not_hold_up_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor is decoded when its group is first asked for, not at the start."""
    decoded: list[bytes] = []
    decode = Cursor.decode

    def counted(value: bytes) -> Cursor:
        decoded.append(value)
        return decode(value)

    monkeypatch.setattr(Cursor, "decode", counted)
    with GroupDriver() as groups:
        cursors = {CursorKey(f"g{number}", "t", 0): Cursor(number) for number in range(10_000)}
        groups.wait(groups.cursors.commit(cursors))
        groups.restart()
        assert decoded == []
        assert len(groups.coordinator.listed()) == 10_000
        assert groups.committed("t", 0, "g9999") == 9_999
        assert len(decoded) == 1


# records and subscriptions


_V1 = bytes.fromhex("c6 01 00 08") + b"consumer" + bytes.fromhex("00 00 00 07 00 00 01 8b cf e5 68 00")
_V2 = b"\xc6\x02" + _V1[2:]


@pytest.mark.parametrize(
    ("group_type", "code"),
    [("classic", b"\x01"), ("consumer", b"\x02"), ("share", b"\x03"), ("streams", b"\x04")],
)
def test_stored_form_of_a_group_record_is_what_the_format_says(group_type: str, code: bytes) -> None:
    record = GroupRecord("consumer", 7, 1_700_000_000_000, group_type)
    golden = _V2 + code + struct.pack(">I", crc32c(_V2 + code))
    assert record.encode() == golden
    assert GroupRecord.decode(golden) == record
    assert GroupRecord.decode(GroupRecord("", 0, None).encode()) == GroupRecord("", 0, None)


def test_a_group_record_of_before_there_were_types_is_of_a_classic_group() -> None:
    record = GroupRecord("consumer", 7, 1_700_000_000_000, "classic")
    assert GroupRecord.decode(_V1 + struct.pack(">I", crc32c(_V1))) == record


@pytest.mark.parametrize("body", [_V2, _V2 + b"\x05", _V1 + b"\x01", _V2 + b"\x02\x02"])
def test_a_group_record_of_another_form_is_damaged(body: bytes) -> None:
    with pytest.raises(EntryCorrupt):
        GroupRecord.decode(body + struct.pack(">I", crc32c(body)))


def test_every_flipped_bit_of_a_record_is_noticed_and_the_others_are_read() -> None:
    value = GroupRecord("consumer", 7, None).encode()
    for index in range(len(value) * 8):
        damaged = bytearray(value)
        damaged[index // 8] ^= 1 << index % 8
        with pytest.raises(EntryCorrupt):
            GroupRecord.decode(bytes(damaged))
    stored = [(record_path("a"), value), (record_path("b/c"), value[:-1])]
    assert read_records(stored) == ({"a": GroupRecord("consumer", 7, None)}, ["b/c"])


@given(st.lists(st.text(max_size=20), max_size=8), st.binary(max_size=20))
def test_subscribed_topics_are_read_from_the_prefix_that_all_versions_share(
    topics: list[str], tail: bytes
) -> None:
    assert subscribed_topics(subscription(*topics) + tail) == frozenset(topics)


@given(st.binary(max_size=64))
def test_arbitrary_metadata_is_a_subscription_or_not_but_never_an_error(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None or isinstance(subscribed_topics(metadata), frozenset)


@pytest.mark.parametrize(
    "metadata",
    [
        b"",
        struct.pack(">hi", -1, 0),
        struct.pack(">hi", 0, -1),
        struct.pack(">hi", 0, 1 << 30),
        struct.pack(">hih", 0, 1, 5),
        struct.pack(">hih", 0, 1, -1),
        struct.pack(">hih", 0, 1, 1) + b"\xff",
    ],
)
def test_what_is_not_a_subscription_is_not_read_as_one(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
