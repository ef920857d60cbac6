"""Consumer groups with real clients: one of two members is killed, another joins; offsets are handed on."""

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.clients.adapters import CLIENTS, Client, Confluent, Record, create_topic

# kafka-python leaves sockets for the garbage collector to close.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

PARTITIONS = 4
EACH = 25  # records per partition and stage
SESSION_TIMEOUT_MS = 2000
TIMEOUT_S = 30.0


class Member:
    """`member.py` as a child process; `waiting` is shared by all members of a test."""

    def __init__(self, waiting: threading.Condition, arguments: list[str]) -> None:
        self._waiting = waiting
        self.assigned: list[int] = []
        self.read: list[tuple[int, int]] = []
        self.other: list[str] = []
        script = Path(__file__).with_name("member.py")
        self.process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout:
            for line in self.process.stdout:
                with self._waiting:
                    self._note(line)
                    self._waiting.notify_all()

    def _note(self, line: str) -> None:
        event = json.loads(line) if line.startswith("{") else {}
        if "assigned" in event:
            self.assigned = event["assigned"]
        elif "read" in event:
            self.read.append(tuple(event["read"]))
        else:
            self.other.append(line.strip())  # an error or a traceback

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()


class Group:
    """A group's members and what may be waited for."""

    def __init__(self, bootstrap: str, topic: str, name: str, protocol: str) -> None:
        self._arguments = [bootstrap, topic, name, str(SESSION_TIMEOUT_MS)]
        self._protocol = protocol
        self._waiting = threading.Condition()
        self.members: list[Member] = []

    def start(self, protocol: str | None = None, assignor: str = "range") -> Member:
        """A member of this protocol, or of the group's; `assignor` is for the classic one."""
        arguments = [*self._arguments, protocol or self._protocol, assignor]
        self.members.append(Member(self._waiting, arguments))
        return self.members[-1]

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        with self._waiting:
            if not self._waiting.wait_for(holds, TIMEOUT_S):
                state = [(member.assigned, len(member.read), member.other) for member in self.members]
                pytest.fail(f"not within {TIMEOUT_S:g} s: {what}; members are {state}")

    def wait_for_shares(self, *members: Member) -> None:
        """Until these members hold all partitions between them, in equal parts."""
        share = PARTITIONS // len(members)

        def shared() -> bool:
            held = [partition for member in members for partition in member.assigned]
            return sorted(held) == list(range(PARTITIONS)) and all(len(m.assigned) == share for m in members)

        self.wait_until(shared, f"{len(members)} members share the partitions")

    def wait_for_reads(self, count: int) -> None:
        self.wait_until(lambda: sum(len(m.read) for m in self.members) >= count, f"{count} records read")


@pytest.fixture
def topic(bootstrap: str, fresh_name: Callable[[str], str]) -> str:
    name = fresh_name("groups")
    create_topic(bootstrap, name, PARTITIONS)
    return name


@pytest.fixture(params=["classic", "consumer"])
def group(
    bootstrap: str, topic: str, fresh_name: Callable[[str], str], request: pytest.FixtureRequest
) -> Iterator[Group]:
    group = Group(bootstrap, topic, fresh_name("group"), request.param)
    yield group
    for member in group.members:
        member.kill()


def stage(number: int) -> list[Record]:
    """`EACH` records for each partition, distinct over all stages."""
    return [
        Record(partition, b"%d" % partition, b"%d/%d" % (number, n), (), 1_700_000_000_000)
        for n in range(EACH)
        for partition in range(PARTITIONS)
    ]


def test_a_killed_member_is_replaced_and_every_record_read_once(
    bootstrap: str, topic: str, group: Group
) -> None:
    producer = Confluent()
    first, second = group.start(), group.start()
    group.wait_for_shares(first, second)
    producer.produce(bootstrap, topic, "none", stage(0))
    group.wait_for_reads(EACH * PARTITIONS)
    assert first.read
    assert second.read

    second.kill()
    group.wait_for_shares(first)  # its session runs out
    before = len(first.read)
    producer.produce(bootstrap, topic, "none", stage(1))
    group.wait_for_reads(2 * EACH * PARTITIONS)
    assert len(first.read) - before == EACH * PARTITIONS

    third = group.start()
    group.wait_for_shares(first, third)
    producer.produce(bootstrap, topic, "none", stage(2))
    group.wait_for_reads(3 * EACH * PARTITIONS)
    assert third.read

    # Members were idle and had committed whenever the group changed, so nothing may come twice.
    seen = Counter(read for member in group.members for read in member.read)
    assert seen == Counter(
        (partition, offset) for partition in range(PARTITIONS) for offset in range(3 * EACH)
    )
    for member in group.members:
        assert member.other == []
        for partition in range(PARTITIONS):
            offsets = [offset for at, offset in member.read if at == partition]
            assert offsets == sorted(offsets)


@pytest.mark.parametrize("group", ["classic"], indirect=True)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_while_its_members_read(
    bootstrap: str, topic: str, group: Group, assignor: str
) -> None:
    """Members of the classic protocol are replaced one by one, and come back: each record is read once."""
    producer = Confluent()
    stages = 0

    def read_on() -> None:
        nonlocal stages
        producer.produce(bootstrap, topic, "none", stage(stages))
        stages += 1
        group.wait_for_reads(stages * EACH * PARTITIONS)

    old = [group.start(assignor=assignor), group.start(assignor=assignor)]
    group.wait_for_shares(*old)
    read_on()
    new = [group.start("consumer"), group.start("consumer")]
    group.wait_for_shares(*old, *new)
    read_on()
    for member in old:
        member.kill()
    group.wait_for_shares(*new)
    read_on()
    last = group.start(assignor=assignor)
    new[0].kill()
    group.wait_for_shares(new[1], last)
    read_on()
    new[1].kill()
    group.wait_for_shares(last)
    read_on()
    seen = Counter(read for member in group.members for read in member.read)
    assert seen == Counter(
        (partition, offset) for partition in range(PARTITIONS) for offset in range(stages * EACH)
    )


@pytest.mark.parametrize("second", CLIENTS, ids=lambda client: f"then-{client.name}")
@pytest.mark.parametrize("first", CLIENTS, ids=lambda client: client.name)
def test_a_group_goes_on_where_another_client_committed(
    bootstrap: str, topic: str, fresh_name: Callable[[str], str], first: Client, second: Client
) -> None:
    name = fresh_name("resume")
    total = EACH * PARTITIONS
    Confluent().produce(bootstrap, topic, "none", stage(0))
    before = first.consume_in_group(bootstrap, topic, name, total // 3)
    after = second.consume_in_group(bootstrap, topic, name, total - total // 3)
    seen = Counter((record.partition, record.offset) for record in before + after)
    assert seen == Counter((partition, offset) for partition in range(PARTITIONS) for offset in range(EACH))
