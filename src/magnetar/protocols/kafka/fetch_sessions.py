"""Incremental fetch sessions (KIP-227): the broker remembers which partitions a client reads, and from which offsets.

A client sends a full request with epoch 0 and gets a session id.  After that it sends only what has changed, and the
answer has only partitions with something new.  A session's epoch counts its requests, so the broker notices a lost one.
The number of sessions is fixed, and so is the number of partitions in all of them.  When there is no room, the session
that was idle longest ends, if it was idle for `EVICT_IDLE_S`; otherwise the client works without a session, which is
always correct.

A session belongs to its principal.  Other principals get the answer that there is no such session, because they can
guess its id, and it has the names of topics.
"""

from collections import OrderedDict
from typing import Final

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.broker.security.model import Principal
from magnetar.broker.usecases.handles import LogEnds
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.fetch import FetchPartition, FetchRequest, PartitionData

EVICT_IDLE_S: Final = 120.0
PARTITIONS_MAX: Final = 1 << 18  # in all sessions: 0.5 KB each
FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
NO_SESSION: Final = 0
_EPOCH_MAX: Final = (1 << 31) - 1
_NO_ERROR: Final = ErrorCode.NONE

TopicKey = str | bytes  # the name that a client used, or from v13 on the topic id


class FetchTarget:
    """One partition of a fetch, and the session's last answer about it."""

    __slots__ = ("log_start", "partition", "request", "told_high_watermark", "topic")

    def __init__(self, topic: TopicKey, request: FetchPartition) -> None:
        self.topic = topic
        self.partition = request.partition
        self.request = request
        self.told_high_watermark = -1
        self.log_start = -1

    def is_news(self, row: PartitionData) -> bool:
        """Whether a row without records has anything that the session's client does not know."""
        return (
            row.error_code != ErrorCode.NONE
            or row.diverging_epoch is not None
            or row.high_watermark != self.told_high_watermark
            or row.log_start_offset != self.log_start
        )

    def knows(self, log: LogEnds) -> bool:
        """Whether the session's client knows where the log begins and ends."""
        return self.told_high_watermark == log.high_watermark and self.log_start == log.log_start


class FetchSession:
    __slots__ = ("epoch", "last_used_s", "owner", "session_id", "targets")

    def __init__(self, session_id: int, owner: Principal) -> None:
        self.session_id = session_id
        self.owner = owner
        self.epoch = INITIAL_EPOCH + 1  # what the next request must carry
        self.last_used_s = 0.0
        self.targets: OrderedDict[tuple[TopicKey, int], FetchTarget] = OrderedDict()

    def update(self, request: FetchRequest, by_id: bool) -> None:
        """Apply an incremental request: partitions that it adds, changes and forgets."""
        for gone in request.forgotten_topics_data:
            key: TopicKey = gone.topic_id if by_id else gone.topic
            for partition in gone.partitions:
                self.targets.pop((key, partition), None)
        for topic in request.topics:
            key = topic.topic_id if by_id else topic.topic
            for wanted in topic.partitions:
                known = self.targets.get((key, wanted.partition))
                if known is None:
                    self.targets[key, wanted.partition] = FetchTarget(key, wanted)
                else:
                    known.request = wanted

    def advance(self) -> None:
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else INITIAL_EPOCH + 1


class FetchPlan:
    """The result of a request's session part: an error, or the partitions to read, in a session or without one."""

    __slots__ = ("error", "is_incremental", "session_id", "targets")

    def __init__(
        self,
        error: ErrorCode,
        targets: list[FetchTarget],
        session_id: int = NO_SESSION,
        is_incremental: bool = False,
    ) -> None:
        self.error = error
        self.targets = targets
        self.session_id = session_id
        self.is_incremental = is_incremental


class FetchSessions:
    """All sessions of one node."""

    def __init__(self, clock: Clock, sessions_max: int) -> None:
        self._clock = clock
        self._sessions_max = sessions_max
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # the longest idle one comes first
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, by_id: bool, owner: Principal) -> FetchPlan:
        """Find, create, change or end the session that the request of `owner` names."""
        session = self._sessions.get(request.session_id)
        if session is not None and session.owner != owner:
            session = None
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            if session is not None:
                self._drop(session.session_id)
            # If a request names a partition twice, the last mention counts, as in Kafka.
            found: dict[tuple[TopicKey, int], FetchTarget] = {}
            for topic in request.topics:
                key = topic.topic_id if by_id else topic.topic
                for wanted in topic.partitions:
                    found[key, wanted.partition] = FetchTarget(key, wanted)
            targets = list(found.values())
            made = None
            if request.session_epoch == INITIAL_EPOCH and targets:
                made = self._make(targets, owner)
            return FetchPlan(_NO_ERROR, targets, made.session_id if made else NO_SESSION)
        if session is None:
            return FetchPlan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        if session.epoch != request.session_epoch:
            return FetchPlan(ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
        before = len(session.targets)
        session.update(request, by_id)
        self._partition_count += len(session.targets) - before
        if self._partition_count > PARTITIONS_MAX:
            self._drop(session.session_id)  # its client sends a full request next
            return FetchPlan(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        session.advance()
        session.last_used_s = self._clock.monotonic()
        self._sessions.move_to_end(session.session_id)
        return FetchPlan(_NO_ERROR, list(session.targets.values()), session.session_id, True)

    def rotate(self, session_id: int, served: list[FetchTarget]) -> None:
        """Move partitions that got data to the end, so that each gets its turn if limits apply."""
        session = self._sessions.get(session_id)
        if session is not None:
            for target in served:
                if (target.topic, target.partition) in session.targets:
                    session.targets.move_to_end((target.topic, target.partition))

    def unserved(self, plan: FetchPlan) -> int:
        """The session id for an answer without any partition; a session that the request has begun is dropped."""
        if plan.is_incremental:
            return plan.session_id
        self._drop(plan.session_id)
        return NO_SESSION

    def _make(self, targets: list[FetchTarget], owner: Principal) -> FetchSession | None:
        now_s = self._clock.monotonic()
        while (
            len(self._sessions) >= self._sessions_max or self._partition_count + len(targets) > PARTITIONS_MAX
        ):
            if not self._sessions:
                return None
            oldest = next(iter(self._sessions.values()))
            if now_s - oldest.last_used_s < EVICT_IDLE_S:
                return None
            self._drop(oldest.session_id)
        session_id = randomness.between(1, _EPOCH_MAX)
        while session_id in self._sessions:
            session_id = randomness.between(1, _EPOCH_MAX)
        session = self._sessions[session_id] = FetchSession(session_id, owner)
        session.last_used_s = now_s
        session.targets.update(((target.topic, target.partition), target) for target in targets)
        self._partition_count += len(session.targets)
        return session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.targets)
