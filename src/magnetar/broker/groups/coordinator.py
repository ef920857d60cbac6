"""All consumer groups of this process: it finds the group that a request names, and reads or changes it.

A group exists while it has members, pending members, a record or offsets.  After a restart it is built from the last
two when a request first names it.  Joining, syncing, heartbeats and leaving never wait and never raise.  Records and
offsets are stored in the metadata store, and the calls that wait for that are coroutines.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from magnetar.base import randomness
from magnetar.base.errors import EntryCorrupt, MetadataError
from magnetar.base.times import Times
from magnetar.broker.groups.catalogue import TopicCatalogue
from magnetar.broker.groups.configs import GROUP_ID_CHARS_MAX, GroupConfigs
from magnetar.broker.groups.consumer.background import Background
from magnetar.broker.groups.consumer.coordinator import ConsumerGroups
from magnetar.broker.groups.consumer.environment import Environment
from magnetar.broker.groups.consumer.group import AssignedGroup, ConsumerGroup
from magnetar.broker.groups.deletion import drop_offsets
from magnetar.broker.groups.epochs import GROUP_OVERHEAD_BYTES, EpochGroup
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.expiry import FORGOTTEN_AT_ONCE, Expiry, expired_cursors, seen
from magnetar.broker.groups.group import Group, protocols_size
from magnetar.broker.groups.memory import MembersMemory, claim, owner_for
from magnetar.broker.groups.migration import MEMBERS_MAX, downgraded, upgraded
from magnetar.broker.groups.model import (
    NO_MEMBER,
    DescribedGroup,
    GroupState,
    JoinReply,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    SyncReply,
    SyncRequest,
    SyncResult,
)
from magnetar.broker.groups.offsets import AnyGroup, GroupOffsets
from magnetar.broker.groups.rebalance import Rebalancer
from magnetar.broker.groups.records import ROOT, GroupRecord, log_failure, read_records, record_path
from magnetar.broker.groups.settings import MEMBER_BYTES_MAX, GroupSettings
from magnetar.broker.groups.share.coordinator import ShareGroups
from magnetar.broker.groups.share.group import ShareGroup
from magnetar.broker.groups.streams.coordinator import StreamsGroups
from magnetar.broker.groups.streams.group import StreamsGroup
from magnetar.broker.groups.streams.stored import StoredTopologies
from magnetar.broker.groups.views import described, is_bare_group, listed, record_of
from magnetar.ledger.cursor_store import CursorStore
from magnetar.ledger.shared_commits import SharedCommits
from magnetar.metadata.store import Delete, MetadataStore, Put

log: Final = logging.getLogger(__name__)

AddedGroup = TypeVar("AddedGroup", Group, ConsumerGroup, ShareGroup, StreamsGroup, AnyGroup)


class GroupCoordinator:
    """The public face of `broker.groups`.

    `canonical_topic` returns the full name of a topic that a consumer names in its subscription; it must not raise.
    `offsets` serves commits and fetches.  `commits` is shared with `cursors`, so that a record and an offset that
    wait at the same moment cost one synced write.
    """

    def __init__(
        self,
        times: Times,
        store: MetadataStore,
        cursors: CursorStore,
        commits: SharedCommits,
        catalogue: TopicCatalogue,
        settings: GroupSettings | None = None,
        *,
        canonical_topic: Callable[[str], str] = str,
        new_id: Callable[[], str] = lambda: str(randomness.new_uuid()),
    ) -> None:
        self.settings = settings or GroupSettings()
        self._clock = clock = times.clock
        self._store = store
        self._cursors = cursors
        self._commits = commits
        self._catalogue = catalogue
        self._canonical_topic = canonical_topic
        self._groups: dict[str, AnyGroup] = {}
        self._memory = MembersMemory()
        self._records: dict[str, GroupRecord] = {}
        self._rebalancer = Rebalancer(clock, self.settings, on_settled=self._settled, new_id=new_id)
        self._upkeep = times.upkeep
        self._expiry_now_ms = times.expiry.now_ms
        self._expiry: Expiry | None = None
        self.configs = GroupConfigs(store, self.settings)
        self._background = Background(clock, self._record)
        environment = Environment(clock, self.settings, catalogue, self._memory, self._background)
        self.consumers = ConsumerGroups(
            self,
            environment,
            on_settled=self._settled,
            goes_back=self._goes_back,
            full_name=canonical_topic,
            timing=self.configs.timing,
            new_id=new_id,
        )
        self.sharing = ShareGroups(
            self,
            environment,
            on_settled=self._settled,
            timing=self.configs.share_timing,
            new_id=new_id,
        )
        self._topologies = StoredTopologies()
        self.streams = StreamsGroups(
            self,
            environment,
            on_settled=self._settled,
            full_name=canonical_topic,
            rules=self.configs.streams_rules,
        )
        self.offsets = GroupOffsets(self, self._rebalancer, clock, cursors, catalogue, self.settings)

    async def start(self) -> None:
        """Read the groups' records and settings; the cursors must be loaded already.  Raises MetadataError."""
        await self.configs.load()
        await self._topologies.load(self._store)
        stored = [(path, versioned.value) for path, versioned in await self._store.scan(ROOT)]
        records, damaged = read_records(stored)
        for name in damaged:
            log.error("the record of group %r is damaged: its offsets expire by their time of commit", name)
        now_ms = self._clock.now_ms()
        writes: list[Put | Delete] = []
        for name, record in records.items():
            if record.empty_since_ms is None:
                records[name] = replace(record, empty_since_ms=now_ms)
                writes.append(Put(record_path(name), records[name].encode()))
        if writes:
            await self._commits.submit(writes, lambda: None)
        self._records = records
        interval_s = self.settings.offsets_retention_check_interval_ms / 1000
        self._expiry = Expiry(self._upkeep, interval_s, self.expire)

    async def close(self) -> None:
        """Stop all timers and wait until every write is durable.  Members get no answer to their waiting requests."""
        for group in self._groups.values():
            group.stop_timers()
        if self._expiry is not None:
            await self._expiry.stop()
        await self._background.close()
        await self._commits.close()

    # membership

    def join(self, request: JoinRequest, reply: JoinReply) -> None:
        """JoinGroup.  `reply` is called once, now or later; it must not call back in here."""
        settings = self.settings
        timeout_ms = request.session_timeout_ms
        if not 0 < len(request.group_id) <= GROUP_ID_CHARS_MAX:
            reply(JoinResult(GroupError.INVALID_GROUP_ID, request.member_id))
        elif not settings.group_min_session_timeout_ms <= timeout_ms <= settings.group_max_session_timeout_ms:
            reply(JoinResult(GroupError.INVALID_SESSION_TIMEOUT, request.member_id))
        elif (size := protocols_size(request.protocols)) > MEMBER_BYTES_MAX:
            reply(JoinResult(GroupError.MESSAGE_TOO_LARGE, request.member_id))
        elif not self._memory.has_room(size, owner_for(self._groups.get(request.group_id), request.viewer)):
            reply(JoinResult(GroupError.COORDINATOR_NOT_AVAILABLE, request.member_id))
        else:
            group = self.find(request.group_id)
            if isinstance(group, ConsumerGroup) and group.members:
                self.consumers.join(group, request, reply)
                return
            if isinstance(group, ConsumerGroup | StreamsGroup) and not group.members:
                self._forget(group)
                group = self._added(self._classic(group.group_id, group.generation))
            if isinstance(group, EpochGroup):
                reply(JoinResult(GroupError.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
                return
            if group is None:
                if request.member_id != NO_MEMBER:
                    reply(JoinResult(GroupError.UNKNOWN_MEMBER_ID, request.member_id))
                    return
                group = self._added(self._classic(request.group_id))
            claim(group, request.viewer)
            self._rebalancer.join(group, request, reply)

    def sync(self, request: SyncRequest, reply: SyncReply) -> None:
        """SyncGroup.  `reply` as for `join`."""
        group = self.find(request.group_id)
        if not request.group_id:
            reply(SyncResult(GroupError.INVALID_GROUP_ID))
        elif group is None:
            reply(SyncResult(GroupError.UNKNOWN_MEMBER_ID))
        elif isinstance(group, ConsumerGroup):
            self.consumers.sync(group, request, reply)
        elif isinstance(group, EpochGroup):
            reply(SyncResult(GroupError.UNKNOWN_MEMBER_ID))
        elif max(map(len, request.assignments.values()), default=0) > MEMBER_BYTES_MAX:
            reply(SyncResult(GroupError.MESSAGE_TOO_LARGE))
        elif not group.memory.has_room(sum(map(len, request.assignments.values()))):
            reply(SyncResult(GroupError.COORDINATOR_NOT_AVAILABLE))
        else:
            self._rebalancer.sync(group, request, reply)

    def heartbeat(
        self, group_id: str, member_id: str, generation: int, group_instance_id: str | None = None
    ) -> GroupError:
        if not group_id:
            return GroupError.INVALID_GROUP_ID
        group = self.find(group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumers.classic_heartbeat(group, member_id, group_instance_id, generation)
        if not isinstance(group, Group):
            return GroupError.UNKNOWN_MEMBER_ID
        return self._rebalancer.heartbeat(group, member_id, group_instance_id, generation)

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> tuple[GroupError, list[GroupError]]:
        """LeaveGroup: the error of the whole request, and one answer for each member."""
        if not group_id:
            return GroupError.INVALID_GROUP_ID, []
        group = self.find(group_id)
        if isinstance(group, ConsumerGroup):
            return GroupError.NONE, [self.consumers.leave(group, leaving) for leaving in members]
        if not isinstance(group, Group):
            return GroupError.NONE, [GroupError.UNKNOWN_MEMBER_ID] * len(members)
        return GroupError.NONE, self._rebalancer.leave(group, members)

    # administration

    def describe(self, group_id: str) -> DescribedGroup:
        """State and members; GROUP_ID_NOT_FOUND (and Dead) when there is no such group, or it is no classic one."""
        return described(group_id, self.find(group_id))

    def listed(self, states: Iterable[str] = (), types: Iterable[str] = ()) -> list[ListedGroup]:
        """All groups, or those whose state and type are among the names given (in any case)."""
        return listed(self.names(), self._groups, self._records, states, types)

    def has_groups(self) -> bool:
        """Whether `listed` returns any group, in any state."""
        return bool(self._groups or self._records) or any(True for _ in self._cursors.subscriptions())

    async def delete(self, group_id: str, kept: Collection[str] = ()) -> GroupError:
        """Delete an empty group and its offsets, except those in the topics of `kept` (full names), where it stays a
        subscription; NONE once that is durable.
        """
        group = self.find(group_id)
        if group is None:
            return GroupError.GROUP_ID_NOT_FOUND
        if group.state is not GroupState.EMPTY or self._cursors.in_use(group_id, kept):
            return GroupError.NON_EMPTY_GROUP
        # From here on a join or commit under this name creates a new group.
        self._forget(group)
        record = self._records.pop(group_id, None)
        topology = self._topologies.of(group_id)
        deletes = [Delete(record_path(group_id)), *self._topologies.writes(group_id, None)]
        try:
            await drop_offsets(self._cursors, group_id, kept, deletes)
        except (MetadataError, EntryCorrupt) as failure:
            self._topologies.stored(group_id, topology)
            if record is not None:
                self._records.setdefault(group_id, record)
            if isinstance(failure, EntryCorrupt):
                log.error("the server cannot delete offsets of group %r one by one: %s", group_id, failure)
                return GroupError.KAFKA_STORAGE_ERROR
            return GroupError.COORDINATOR_NOT_AVAILABLE
        return GroupError.NONE

    def is_bare(self, group_id: str) -> bool:
        """Whether the group has nothing but committed offsets, as a subscription of Pulsar's has, or not even these."""
        group = self._groups.get(group_id)
        return group_id not in self._records if group is None else is_bare_group(group)

    # expiry

    async def expire(self) -> int:
        """Drop expired offsets, and groups that have nothing left; returns how many offsets.

        Raises MetadataError; the next call tries the rest again.
        """
        retention_ms = self.settings.offsets_retention_minutes * 60_000
        dropped = 0
        leaving: list[asyncio.Future[None]] = []
        for name in self.names():
            await asyncio.sleep(0)  # ten thousand groups are too many for one turn of the loop
            group = self._groups.get(name) or self._built(name)
            try:
                keys = list(
                    expired_cursors(
                        group, self._cursors, self._catalogue, self._expiry_now_ms(), retention_ms
                    )
                )
            except EntryCorrupt as damage:
                log.error("offsets of group %r cannot expire: %s", name, damage)
                continue
            if keys:
                await self._cursors.drop(keys)
                dropped += len(keys)
                log.info("%d offsets of group %r have expired", len(keys), name)
            if name not in self._cursors:
                leaving += self._forget_if_unused(name)
            if len(leaving) >= FORGOTTEN_AT_ONCE:
                await asyncio.shield(asyncio.gather(*leaving))
                leaving.clear()
        await asyncio.shield(asyncio.gather(*leaving))
        return dropped

    def _forget_if_unused(self, name: str) -> "Iterable[asyncio.Future[None]]":
        """Forget an empty group that has no offsets and no member about to join; what to wait for is returned."""
        group = self.find(name)
        if group is None or group.state is not GroupState.EMPTY or group.has_pending_members:
            return ()
        self._forget(group)
        if self._records.pop(name, None) is None:
            return ()
        deletes = [Delete(record_path(name)), *self._topologies.writes(name, None)]
        return (seen(self._commits.submit(deletes, lambda: None)),)

    def consumes(self, group_id: str, topic: str) -> bool:
        """Whether the group has members that consume `topic` (full name), and is no share group."""
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ShareGroup):
            return False
        return bool(group.members) and group.is_subscribed_to(topic)

    @property
    def rights_changes(self) -> int:  # as that of the catalogue
        return self._catalogue.rights_changes

    # what `offsets` needs to know about groups

    def find(self, group_id: str) -> AnyGroup | None:
        group = self._groups.get(group_id)
        if group is None and (group_id in self._records or group_id in self._cursors):
            group = self._added(self._built(group_id))
        return group

    def made_consumer(self, group_id: str) -> ConsumerGroup | str:
        """Create a group of the consumer protocol, if needed in the place of a classic one, whose members it takes
        over; or return why that is not possible.
        """
        before = self.find(group_id)
        now_ms = self._clock.now_ms()
        epoch = before.generation if before is not None else 0
        if isinstance(before, ShareGroup | StreamsGroup):
            return f"The group is a {before.group_type} group."
        if isinstance(before, Group) and (before.members or before.has_pending_members):
            if not self.settings.allows_upgrade:
                return "The group has members of the classic protocol, and keeps it while they are there."
            made = upgraded(before, now_ms, self._catalogue, self._canonical_topic, self._memory)
            if isinstance(made, str):
                return made
            log.info("group %r changes to the consumer protocol", group_id)
            del self._groups[group_id]
            return self._added(made)
        if before is not None:
            self._forget(before)
        return self._added(ConsumerGroup(group_id, now_ms, epoch=epoch, memory=self._memory))

    def _goes_back(self, group: AssignedGroup) -> bool:
        """Make a group whose members all speak the classic protocol a classic group; returns whether it is one now."""
        assert isinstance(group, ConsumerGroup), group.group_id
        if not self.settings.allows_downgrade or len(group.members) > MEMBERS_MAX:
            return False
        log.info("group %r changes to the classic protocol", group.group_id)
        now_ms = self._clock.now_ms()
        made = Group(
            group.group_id,
            now_ms,
            generation=group.epoch,
            protocol_type=group.protocol_type,
            canonical_topic=self._canonical_topic,
            memory=self._memory,
        )
        downgraded(group, made, now_ms, self._catalogue)
        self._forget(group)
        self._added(made)
        self._rebalancer.take_over(made)
        return True

    def made_share(self, group_id: str) -> ShareGroup | str:
        """Create a share group, if needed in the place of a classic group without members, as a Pulsar subscription
        is; or return why that is not possible.
        """
        before = self.find(group_id)
        if before is not None:
            if not is_bare_group(before):
                return "The group is no share group."
            self._forget(before)
        return self._added(ShareGroup(group_id, self._clock.now_ms(), memory=self._memory))

    def made_streams(self, group_id: str) -> StreamsGroup | str:
        """A new streams group, also in the place of a classic one without members; or why it cannot be."""
        before = self.find(group_id)
        if before is not None:
            if not isinstance(before, Group) or before.members or before.has_pending_members:
                return "The group is no streams group."
            self._forget(before)
        return self._added(self._streams(group_id, before.generation if before is not None else 0))

    def _streams(self, group_id: str, epoch: int, since_ms: int | None = None) -> StreamsGroup:
        return StreamsGroup(
            group_id,
            self._clock.now_ms() if since_ms is None else since_ms,
            epoch=epoch,
            memory=self._memory,
            topology=self._topologies.of(group_id),
            full_name=self._canonical_topic,
        )

    def _record(self, group: EpochGroup, publish: Callable[[], None]) -> "asyncio.Future[None]":
        """Store the last epoch that the group has asked for, because a member is about to join; `publish` is called in
        the step in which the future is done.
        """
        record = GroupRecord(group.protocol_type, group.generation, None, group.group_type)
        return self._write(group, record, publish)

    def names(self) -> "dict[str, None]":
        """The names of all groups, each once."""
        return dict.fromkeys((*self._groups, *self._records, *self._cursors.subscriptions()))

    def _added(self, group: AddedGroup) -> AddedGroup:
        self._groups[group.group_id] = group
        if isinstance(group, EpochGroup):
            group.memory.used += GROUP_OVERHEAD_BYTES
        return group

    def _built(self, group_id: str) -> AnyGroup:
        """An empty group, built from what is stored about it."""
        record = self._records.get(group_id)
        if record is None or record.group_type == Group.group_type:
            return self._classic(group_id)
        since_ms = self._empty_since_ms(record)
        if record.group_type == ShareGroup.group_type:
            return ShareGroup(group_id, since_ms, epoch=record.generation, memory=self._memory)
        if record.group_type == StreamsGroup.group_type:
            return self._streams(group_id, record.generation, since_ms)
        return ConsumerGroup(group_id, since_ms, epoch=record.generation, memory=self._memory)

    def _classic(self, group_id: str, generation: int = 0) -> Group:
        record = self._records.get(group_id)
        return Group(
            group_id,
            self._empty_since_ms(record),
            generation=record.generation if record else generation,
            protocol_type=record.protocol_type if record else None,
            canonical_topic=self._canonical_topic,
            memory=self._memory,
        )

    def _empty_since_ms(self, record: GroupRecord | None) -> int:
        since_ms = record.empty_since_ms if record else None
        return self._clock.now_ms() if since_ms is None else since_ms

    def _forget(self, group: AnyGroup) -> None:
        group.die(self._clock.now_ms())
        del self._groups[group.group_id]
        if isinstance(group, EpochGroup):
            group.memory.used -= GROUP_OVERHEAD_BYTES

    def _settled(self, group: AnyGroup) -> None:
        """Store whether the group has members now, because the retention of its offsets depends on it."""
        record = record_of(group)
        before = self._records.get(group.group_id)
        if before and replace(before, generation=record.generation) == record:
            return  # the generation alone is not worth a synced write (see `group`)
        self._write(group, record)
        if self._expiry is not None and not group.members and group.group_id not in self._cursors:
            self._expiry.unused()

    def _write(
        self, group: AnyGroup | EpochGroup, record: GroupRecord, publish: Callable[[], None] = lambda: None
    ) -> "asyncio.Future[None]":
        self._records[group.group_id] = record
        topology = group.topology if isinstance(group, StreamsGroup) else None
        writes = [
            Put(record_path(group.group_id), record.encode()),
            *self._topologies.writes(group.group_id, topology),
        ]

        def published() -> None:
            self._topologies.stored(group.group_id, topology)
            publish()

        written = self._commits.submit(writes, published)
        written.add_done_callback(lambda future: log_failure(future, group.group_id))
        return written
