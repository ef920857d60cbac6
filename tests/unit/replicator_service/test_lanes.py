"""A topic's way to its target: what its broker hears when the target takes messages, is away, or refuses them."""

import asyncio
import base64
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from magnetar.replicator_service.dead_letters import DeadLetters
from magnetar.replicator_service.lane import Lane, Sent
from magnetar.replicator_service.lanes import LaneBusy, LaneKey, Lanes
from magnetar.replicators import delivery
from magnetar.replicators.errors import CredentialsRefused, PoisonRecords, TargetUnavailable
from magnetar.replicators.provider import ReplicatedRecord
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import MessageMetadata

TOPIC = "persistent://public/orders/a-partition-1"
KEY = LaneKey(TOPIC, "west")
PATIENCE_S = 30.0


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PAUSES_S", (0.0,) * 4)


def sent(number: int, value: bytes | None = None, **more: object) -> Sent:
    said = MessageMetadata(producer_name="p", sequence_id=number, publish_time=1_000, **more)  # type: ignore[arg-type]
    data = frame_entry(said, b"%d" % number if value is None else value)
    return Sent(number, 0, read_entry(memoryview(data), verify=True))


@dataclass
class Target:
    """A target in memory.  `answers` has what becomes of each flush, then of opening: an error, or None."""

    answers: list[Exception | None] = field(default_factory=list)
    openings: list[Exception | None] = field(default_factory=list)
    arrived: list[ReplicatedRecord] = field(default_factory=list)
    opened: int = 0
    closed: int = 0
    is_open: threading.Event = field(default_factory=threading.Event)  # a flush waits for it
    began: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.is_open.set()

    def open(self) -> "Target":
        self.opened += 1
        error = self.openings.pop(0) if self.openings else None
        if error is not None:
            raise error
        return self

    def send(self, records: Sequence[ReplicatedRecord]) -> None:
        self.arrived += records

    def flush(self) -> None:
        self.began.set()
        assert self.is_open.wait(PATIENCE_S)
        error = self.answers.pop(0) if self.answers else None
        if error is not None:
            raise error

    def close(self) -> None:
        self.closed += 1

    @property
    def numbers(self) -> list[int]:
        return [int(record.value or b"-1") for record in self.arrived]


class Broker:
    """What a broker hears of its lane."""

    def __init__(self, lanes: Lanes, target: Target, letters: DeadLetters | None = None) -> None:
        self.receipts: list[int] = []
        self.has_failed = asyncio.Event()
        self._came = asyncio.Event()
        self._lanes = lanes
        self._target = target
        self._letters = letters or DeadLetters(None, TOPIC, "west")

    def make(self) -> Lane:
        return Lane("a to west", 1, self._target.open, self._letters, self.delivered, self.has_failed.set)

    async def begin(self) -> Lane:
        return await self._lanes.begin(KEY, self.make)

    def delivered(self, done: Sequence[Sent]) -> None:
        self.receipts += [one.sequence_id for one in done]
        self._came.set()

    async def has_receipts(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.receipts) < count:
                self._came.clear()
                await self._came.wait()


def test_receipts_come_in_order_and_only_when_the_target_has_the_messages() -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target()
        broker = Broker(lanes, target)
        lane = await broker.begin()
        target.is_open.clear()
        for number in (5, 3, 9):  # of several producers at the source
            lane.take(sent(number))
        await asyncio.to_thread(target.began.wait, PATIENCE_S)
        assert broker.receipts == []
        target.is_open.set()
        await broker.has_receipts(3)
        assert broker.receipts == [5, 3, 9]
        assert target.numbers == [5, 3, 9]
        assert [record.partition for record in target.arrived] == [1, 1, 1]
        assert [record.offset for record in target.arrived] == [0, 1, 2]
        await lanes.close()
        assert (target.opened, target.closed) == (1, 1)

    asyncio.run(scenario())


def test_a_chunk_that_failed_is_sent_again_before_what_came_after_it() -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target([TargetUnavailable("away"), TargetUnavailable("away")])
        broker = Broker(lanes, target)
        lane = await broker.begin()
        lane.take(sent(1))
        await broker.has_receipts(1)
        lane.take(sent(2))
        await broker.has_receipts(2)
        assert target.numbers == [1, 1, 1, 2]
        assert target.opened == 3
        await lanes.close()

    asyncio.run(scenario())


def test_a_target_that_stays_away_ends_the_lane_without_a_receipt(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target([None] + [TargetUnavailable("it is away")] * 10)
        broker = Broker(lanes, target)
        lane = await broker.begin()
        lane.take(sent(1))
        await broker.has_receipts(1)
        lane.take(sent(2))
        async with asyncio.timeout(PATIENCE_S):
            await broker.has_failed.wait()
            lane.take(sent(3))
            await lane.room()
            await lane.ended.wait()
        assert broker.receipts == [1]
        assert set(target.numbers) == {1, 2}
        assert target.closed == target.opened
        await lanes.close()

    asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "the replication of a to west ends: it is away"
    ]


@pytest.mark.parametrize("error", [CredentialsRefused("no right"), TargetUnavailable("away")])
def test_a_target_that_cannot_be_opened_is_not_begun(error: Exception) -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target(openings=[error])
        broker = Broker(lanes, target)
        with pytest.raises(type(error)):
            await broker.begin()
        assert not broker.has_failed.is_set()
        lane = await broker.begin()  # as a broker does after a pause
        lane.take(sent(1))
        await broker.has_receipts(1)
        await lanes.close()

    asyncio.run(scenario())


def test_a_fault_of_a_provider_ends_its_lane_and_the_broker_hears_of_it() -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target([RuntimeError("a bug")])
        broker = Broker(lanes, target)
        lane = await broker.begin()
        lane.take(sent(1))
        async with asyncio.timeout(PATIENCE_S):
            await broker.has_failed.wait()
            await lane.ended.wait()
        assert broker.receipts == []
        await lanes.close()

    asyncio.run(scenario())


def test_a_new_lane_waits_until_the_old_one_sends_nothing_any_more() -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target()
        old = Broker(lanes, target)
        lane = await old.begin()
        target.is_open.clear()
        lane.take(sent(1))
        await asyncio.to_thread(target.began.wait, PATIENCE_S)
        new = Broker(lanes, target)
        with pytest.raises(LaneBusy):
            await new.begin()
        lane.close()  # its connection is lost, and its thread is still sending
        coming = asyncio.create_task(new.begin())
        for _ in range(10):
            await asyncio.sleep(0)
        assert (coming.done(), target.opened) == (False, 1)
        target.is_open.set()
        async with asyncio.timeout(PATIENCE_S):
            again = await coming
        assert (target.opened, target.closed) == (2, 1)
        again.take(sent(1))
        await new.has_receipts(1)
        await lanes.close()

    asyncio.run(scenario())


def test_what_a_lane_has_no_room_for_waits() -> None:
    async def scenario() -> None:
        lanes, target = Lanes(), Target()
        broker = Broker(lanes, target)
        lane = await broker.begin()
        target.is_open.clear()
        lane.take(sent(0))
        await asyncio.to_thread(target.began.wait, PATIENCE_S)
        for number in range(1, 6):
            lane.take(sent(number, bytes(16 << 20)))
        waiting = asyncio.create_task(lane.room())
        await asyncio.sleep(0)
        assert not waiting.done()
        target.is_open.set()
        async with asyncio.timeout(PATIENCE_S):
            await waiting
        await broker.has_receipts(6)
        await lanes.close()

    asyncio.run(scenario())


def letters_in(folder: Path) -> list[dict[str, object]]:
    [file] = folder.iterdir()
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_what_the_target_never_takes_is_stored_before_its_receipt(tmp_path: Path) -> None:
    async def scenario() -> None:
        poison = ReplicatedRecord(1, 1, 1_000, b"\xff", None, [("h", None), ("h", b"\xfe")])
        lanes, target = Lanes(), Target([PoisonRecords([(poison, "it is too large")])])
        broker = Broker(lanes, target, DeadLetters(tmp_path, TOPIC, "west"))
        lane = await broker.begin()
        lane.take(sent(1))
        chunk = {"uuid": "u", "chunk_id": 0, "num_chunks_from_msg": 2, "total_chunk_msg_size": 9}
        lane.take(sent(2, b"half", **chunk))
        lane.take(sent(3))
        await broker.has_receipts(3)
        await lanes.close()
        assert (lane.sent, lane.dead) == (1, 2)

    asyncio.run(scenario())
    never, unread = sorted(letters_in(tmp_path), key=lambda one: "entry" in one)
    assert (never["topic"], never["region"], never["reason"]) == (TOPIC, "west", "it is too large")
    assert (never["key"], never["value"], never["timestampMs"]) == ("/w==", None, 1_000)
    assert never["headers"] == [["h", None], ["h", "/g=="]]
    assert "chunk" in str(unread["reason"])
    data = base64.b64decode(str(unread["entry"]))
    assert bytes(read_entry(memoryview(data), verify=True).payload) == b"half"


def test_without_a_place_for_it_such_a_message_keeps_its_topic_waiting() -> None:
    async def scenario() -> None:
        poison = ReplicatedRecord(1, 0, 1_000, None, b"1", ())
        lanes, target = Lanes(), Target([PoisonRecords([(poison, "it is too large")])])
        broker = Broker(lanes, target)
        lane = await broker.begin()
        lane.take(sent(1))
        async with asyncio.timeout(PATIENCE_S):
            await broker.has_failed.wait()
        assert broker.receipts == []
        await lanes.close()

    asyncio.run(scenario())


def test_a_line_that_a_crash_has_cut_does_not_swallow_the_next_one(tmp_path: Path) -> None:
    record = ReplicatedRecord(1, 0, 1_000, None, b"1", ())
    DeadLetters(tmp_path, TOPIC, "west").write([(record, "first")], ())
    [file] = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:-5])
    DeadLetters(tmp_path, TOPIC, "west").write([(record, "second")], ())
    lines = file.read_text().splitlines()
    assert len(lines) == 2
    assert json.loads(lines[1])["reason"] == "second"


def test_topics_and_regions_have_files_of_their_own(tmp_path: Path) -> None:
    record = ReplicatedRecord(1, 0, 1_000, None, b"1", ())
    for topic in ("persistent://a/b/c", "persistent://a/b.c/c", "persistent://a/b/" + "n" * 200):
        for region in ("east", "west"):
            DeadLetters(tmp_path, topic, region).write([(record, "why")], ())
    files = list(tmp_path.iterdir())
    assert len(files) == 6
    assert all(len(file.read_text().splitlines()) == 1 for file in files)
    assert all(not file.stat().st_mode & 0o007 for file in files)


def test_letters_are_on_the_disk_when_they_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[bytes] = []
    sync = os.fsync

    def note(descriptor: int) -> None:
        sync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve().name.encode())

    monkeypatch.setattr(os, "fsync", note)
    record = ReplicatedRecord(1, 0, 1_000, None, b"1", ())
    DeadLetters(tmp_path, TOPIC, "west").write([(record, "why")], ())
    [file] = tmp_path.iterdir()
    assert synced == [file.name.encode(), tmp_path.name.encode()]


def test_a_lane_that_is_closed_ends_its_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "PAUSES_S", (10 * PATIENCE_S,))

    async def scenario() -> None:
        lanes, target = Lanes(), Target([TargetUnavailable("away")] * 2)
        broker = Broker(lanes, target)
        lane = await broker.begin()
        lane.take(sent(1))
        await asyncio.to_thread(target.began.wait, PATIENCE_S)
        lane.close()
        async with asyncio.timeout(PATIENCE_S):
            await lane.ended.wait()
        assert target.numbers == [1]  # it was not tried once more
        assert broker.receipts == []
        await lanes.close()

    asyncio.run(scenario())


def test_letters_that_cannot_be_stored_give_no_receipt(tmp_path: Path) -> None:
    record = ReplicatedRecord(1, 0, 1_000, None, b"1", ())
    with pytest.raises(TargetUnavailable, match="dead letters cannot be stored"):
        DeadLetters(tmp_path / "gone", TOPIC, "west").write([(record, "why")], ())
