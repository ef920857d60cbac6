"""Drives a group coordinator by hand: a fake clock, a metadata store in memory, and members that record their
answers.

with GroupDriver() as groups:
    member = groups.join_whole("g", "client")  # alone in its group, with an id and an assignment
    groups.advance(10.0)
    assert groups.heartbeat(member) is GroupError.UNKNOWN_MEMBER_ID
"""

import asyncio
import itertools
import struct
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from magnetar.broker.groups.coordinator import GroupCoordinator
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import (
    NO_MEMBER,
    CommitRequest,
    ConsumerHeartbeat,
    ConsumerHeartbeatResult,
    JoinRequest,
    JoinResult,
    LeavingMember,
    OffsetToCommit,
    StreamsHeartbeat,
    StreamsHeartbeatResult,
    SyncRequest,
    SyncResult,
    Task,
    Topology,
)
from magnetar.broker.groups.settings import GroupSettings
from magnetar.broker.groups.viewer import Viewer
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.testing.clock import FakeClock, times_by
from magnetar.testing.metadata import MemoryMetadataStore

T = TypeVar("T")


def subscription(*topics: str) -> bytes:
    """Member metadata of a consumer of `topics` (ConsumerProtocolSubscription version 0)."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def viewer(
    owner: str = "",
    may_see: Callable[[str], bool] = lambda topic: True,
    host: str = "",
    is_current: Callable[[], bool] = lambda: True,
) -> Viewer:
    """A client that may see all topics, unless a test says otherwise."""
    return Viewer(owner, host, may_see, is_current)


def _viewer_of(changes: dict[str, Any]) -> Viewer:
    """The viewer of a request, from what its test says of it; that is taken out of `changes`."""
    return viewer(**{name: changes.pop(name) for name in Viewer._fields if name in changes})


def topic_id(topic: str) -> bytes:
    """The id of a topic in `DictCatalogue`."""
    return topic.encode().ljust(16, b"\0")


class DictCatalogue:
    """Topics by full name and partition count."""

    def __init__(self, **partitions: int) -> None:
        self.partitions: dict[str, int] = partitions
        self.ids: dict[str, bytes] = {}  # of topics whose id does not come from their name
        self._seen: dict[str, int] = {}
        self._changes = 0
        self.rights_changes = 0
        self.looks = 0  # how often all names were read

    @property
    def changes(self) -> int:
        if self.partitions != self._seen:
            self._seen = dict(self.partitions)
            self._changes += 1
        return self._changes + self.rights_changes

    def found(self, topic: str) -> tuple[bytes, int] | None:
        count = self.partitions.get(topic)
        return None if count is None else (self.ids.get(topic, topic_id(topic)), count)

    def name_of(self, topic_id: bytes) -> str | None:
        named = [name for name, one in self.ids.items() if one == topic_id]
        name = named[0] if named else topic_id.rstrip(b"\0").decode()
        return name if name in self.partitions else None

    def shown_name(self, topic_id: bytes) -> str | None:
        return self.name_of(topic_id)

    def shown(self) -> list[tuple[str, str]]:
        self.looks += 1
        return [(name, name) for name in self.partitions]

    def exists(self, topic: str, partition: int) -> bool:
        return 0 <= partition < self.partitions.get(topic, 0)


@dataclass
class Parked:
    """The answer to a parked request: nothing yet, or one result."""

    joined: list[JoinResult] = field(default_factory=list)
    synced: list[SyncResult] = field(default_factory=list)

    @property
    def join(self) -> JoinResult:
        (result,) = self.joined
        return result

    @property
    def sync(self) -> SyncResult:
        (result,) = self.synced
        return result

    @property
    def pending(self) -> bool:
        return not self.joined and not self.synced


class GroupDriver:
    """A coordinator with everything around it; `restart` loses what is not durable."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        # With a delay that tests can see, so that the members of a new group join one after another.
        self.settings = settings or GroupSettings(group_initial_rebalance_delay_ms=3_000)
        self.clock = FakeClock()
        self.store = MemoryMetadataStore()
        self.catalogue = DictCatalogue(t=8, u=8)
        self._loop = asyncio.new_event_loop()
        self._ids = itertools.count(1)
        self.coordinator: GroupCoordinator
        self.cursors: CursorStore
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if kind is None:
            self.wait(self.coordinator.close())
        self._loop.close()

    def _start(self) -> None:
        commits = SharedCommits(self.store)
        self.cursors = CursorStore(self.store, commits)
        self.coordinator = GroupCoordinator(
            times_by(self.clock),
            self.store,
            self.cursors,
            commits,
            self.catalogue,
            self.settings,
            new_id=lambda: str(next(self._ids)),
        )
        self.wait(self.cursors.load())
        self.wait(self.coordinator.start())

    def restart(self) -> None:
        self.wait(self.coordinator.close())
        self._start()

    # the event loop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def call(self, step: Callable[..., T], *args: Any) -> T:
        """Run `step` on the loop, and all work that it has started, until nothing more happens at this time."""

        async def on_loop() -> T:
            result = step(*args)
            for _ in range(8):
                await asyncio.sleep(0)
            return result

        return self.wait(on_loop())

    def advance(self, seconds: float) -> None:
        self.call(self.clock.advance, seconds)

    # requests

    def request(self, group_id: str = "g", member_id: str = NO_MEMBER, **changes: Any) -> JoinRequest:
        """A JoinGroup; `changes` may also name fields of its `Viewer`, as those of `heartbeat_request`."""
        request = JoinRequest(
            group_id,
            member_id,
            "consumer",
            (("range", subscription("t")),),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            client_id="client",
            client_host="/127.0.0.1",
            viewer=_viewer_of(changes),
        )
        return replace(request, **changes)

    def join(self, request: JoinRequest) -> Parked:
        parked = Parked()
        self.call(self.coordinator.join, request, parked.joined.append)
        return parked

    def new_id(self, group_id: str = "g", **changes: Any) -> str:
        """A member id, from an answer with MEMBER_ID_REQUIRED."""
        result = self.join(self.request(group_id, **changes)).join
        assert result.error is GroupError.MEMBER_ID_REQUIRED
        return result.member_id

    def join_new(self, group_id: str = "g", **changes: Any) -> Parked:
        """Send both requests of a new dynamic member."""
        return self.join(self.request(group_id, self.new_id(group_id, **changes), **changes))

    def sync(
        self,
        joined: JoinResult,
        assignments: dict[str, bytes] | None = None,
        group_id: str = "g",
        **changes: Any,
    ) -> Parked:
        parked = Parked()
        request = SyncRequest(
            group_id,
            joined.member_id,
            joined.generation,
            assignments or {},
            protocol_type=joined.protocol_type,
            protocol_name=joined.protocol_name,
        )
        self.call(self.coordinator.sync, replace(request, **changes), parked.synced.append)
        return parked

    def heartbeat(
        self, joined: JoinResult, group_instance_id: str | None = None, group_id: str = "g"
    ) -> GroupError:
        return self.call(
            self.coordinator.heartbeat, group_id, joined.member_id, joined.generation, group_instance_id
        )

    def leave(
        self, *members: str | LeavingMember, group_id: str = "g"
    ) -> tuple[GroupError, list[GroupError]]:
        leaving = [LeavingMember(member) if isinstance(member, str) else member for member in members]
        return self.call(self.coordinator.leave, group_id, leaving)

    def beat(self, member_id: str, epoch: int, *topics: str, **changes: Any) -> ConsumerHeartbeatResult:
        """The answer to a `heartbeat_request`."""
        return self.beat_with(self.heartbeat_request(member_id, epoch, *topics, **changes))

    def heartbeat_request(
        self,
        member_id: str,
        epoch: int,
        *topics: str,
        group_id: str = "g",
        owned: Mapping[str, Collection[int]] | None = None,
        **changes: Any,
    ) -> ConsumerHeartbeat:
        """A heartbeat of the consumer protocol; one that joins has all necessary fields, and subscribes to `topics`."""
        names = topics if topics or epoch == 0 else None
        owns = {} if owned is None and epoch == 0 else owned
        request = ConsumerHeartbeat(
            group_id,
            member_id,
            epoch,
            rebalance_timeout_ms=30_000 if epoch == 0 else -1,
            names=names,
            topics=topics,
            owned=None if owns is None else {topic_id(one): frozenset(owns[one]) for one in owns},
            client_id="client",
            client_host="/127.0.0.1",
            viewer=_viewer_of(changes),
        )
        return replace(request, **changes)

    def beat_with(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """The answer to any heartbeat."""
        return self.wait(self.beating(request))

    async def beating(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatResult:
        """As `beat_with`, for a test that does other things meanwhile."""
        answer = self.coordinator.consumers.heartbeat(request)
        return answer if isinstance(answer, ConsumerHeartbeatResult) else await answer

    def stream(
        self, member_id: str, epoch: int, topology: Topology | None = None, **changes: Any
    ) -> StreamsHeartbeatResult:
        """The answer to a `stream_request`."""
        return self.wait(self.streaming(self.stream_request(member_id, epoch, topology, **changes)))

    def stream_request(
        self,
        member_id: str,
        epoch: int,
        topology: Topology | None = None,
        *,
        group_id: str = "g",
        active: Collection[Task] | None = None,
        standby: Collection[Task] = (),
        **changes: Any,
    ) -> StreamsHeartbeat:
        """A heartbeat of the streams protocol; with a topology it says all that a member that joins has to say.

        Each member is a process of its own, unless `changes` say otherwise.
        """
        request = StreamsHeartbeat(
            group_id,
            member_id,
            epoch,
            rebalance_timeout_ms=-1 if topology is None else 30_000,
            topology=topology,
            active=None if active is None else frozenset(active),
            standby=None if active is None else frozenset(standby),
            warmup=None if active is None else frozenset(),
            process_id=None if topology is None else f"process of {member_id}",
            client_id="client",
            client_host="/127.0.0.1",
            check_topics=lambda names: None,
            viewer=_viewer_of(changes),
        )
        return replace(request, **changes)

    async def streaming(self, request: StreamsHeartbeat) -> StreamsHeartbeatResult:
        """The answer to any heartbeat of the streams protocol."""
        answer = self.coordinator.streams.heartbeat(request)
        return answer if isinstance(answer, StreamsHeartbeatResult) else await answer

    def commit(self, *offsets: OffsetToCommit, group_id: str = "g", **changes: Any) -> list[GroupError]:
        request = CommitRequest(group_id, offsets, **changes)

        async def on_loop() -> list[GroupError]:
            return await self.coordinator.offsets.commit(request)

        return self.wait(on_loop())

    def committed(self, topic: str, partition: int, group_id: str = "g") -> int | None:
        error, (cursor,) = self.coordinator.offsets.fetch(group_id, [(topic, partition)])
        assert error is GroupError.NONE
        return None if cursor is None else cursor.committed_offset

    # whole groups

    def stable(
        self, count: int = 1, group_id: str = "g", instance_ids: Sequence[str | None] = (), **changes: Any
    ) -> list[JoinResult]:
        """A new Stable group of `count` members, the leader first; each member's assignment is its own id."""
        parked = []
        for index in range(count):
            instance_id = instance_ids[index] if index < len(instance_ids) else None
            member_id = NO_MEMBER if instance_id else self.new_id(group_id, **changes)
            parked.append(
                self.join(self.request(group_id, member_id, group_instance_id=instance_id, **changes))
            )
        self.advance(self.settings.group_initial_rebalance_delay_ms / 1000 * (count + 1))
        return self.synced([each.join for each in parked], group_id)

    def synced(self, joined: list[JoinResult], group_id: str = "g") -> list[JoinResult]:
        """Let members that have joined the same generation sync, the leader first."""
        assert {result.error for result in joined} == {GroupError.NONE}
        joined = sorted(joined, key=lambda result: result.member_id != result.leader)
        assignments = {result.member_id: result.member_id.encode() for result in joined}
        parked = [
            self.sync(result, assignments if result.member_id == result.leader else {}, group_id)
            for result in joined
        ]
        assert [each.sync.assignment for each in parked] == list(assignments.values())
        return joined
