"""The time that members of groups with epochs have: to say something, and to do their part of a rebalance."""

import logging
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from magnetar.base.clock import Clock, TimerHandle
from magnetar.broker.groups.epochs import EpochGroup

log: Final = logging.getLogger(__name__)


class WatchedMember:
    """The timers of a member."""

    __slots__ = (
        "deadline",
        "member_id",
        "rebalance_timeout_ms",
        "rebalance_timer",
        "timer",
        "timer_deadline",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.rebalance_timeout_ms = 0
        # Heartbeats come far more often than sessions end: each only moves `deadline`, and the timer looks again.
        self.deadline = 0.0
        self.timer: TimerHandle | None = None
        self.timer_deadline = 0.0
        self.rebalance_timer: TimerHandle | None = None

    def stop_timers(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        self.stop_rebalance_timer()

    def stop_rebalance_timer(self) -> None:
        if self.rebalance_timer is not None:
            self.rebalance_timer.cancel()
            self.rebalance_timer = None


GroupT = TypeVar("GroupT", bound=EpochGroup)
MemberT = TypeVar("MemberT", bound=WatchedMember)


class Watch(Generic[GroupT, MemberT]):
    """The deadlines of all members of one coordinator's groups.  It calls `remove` for a member whose time is over."""

    def __init__(self, clock: Clock, remove: Callable[[GroupT, MemberT], None]) -> None:
        self._clock = clock
        self._remove = remove

    def keep_alive(self, group: GroupT, member: MemberT, timeout_ms: int) -> None:
        """The member has sent a request, and may be silent for `timeout_ms` from now on."""
        member.deadline = self._clock.monotonic() + timeout_ms / 1000
        if member.timer is None or member.deadline < member.timer_deadline:
            self._arm(group, member)

    def _arm(self, group: GroupT, member: MemberT) -> None:
        if member.timer is not None:
            member.timer.cancel()
        member.timer_deadline = member.deadline
        delay_s = member.deadline - self._clock.monotonic()
        member.timer = self._clock.call_later(delay_s, self._expire_session, group, member)

    def _expire_session(self, group: GroupT, member: MemberT) -> None:
        member.timer = None
        if self._clock.monotonic() < member.deadline:
            self._arm(group, member)
        else:
            log.info("member %r of group %r has failed", member.member_id, group.group_id)
            self._remove(group, member)

    def limit(self, group: GroupT, member: MemberT) -> None:
        """Give the member the time of a rebalance: at its end the watch removes the member from its group, unless
        `stop_rebalance_timer` was called before.
        """
        member.stop_rebalance_timer()
        delay_s = max(member.rebalance_timeout_ms, 0) / 1000
        member.rebalance_timer = self._clock.call_later(delay_s, self._expire_rebalance, group, member)

    def limit_revocation(self, group: GroupT, member: MemberT, *, begins: bool, is_due: bool) -> None:
        """Limit the time in which a member must give back partitions or tasks.

        `is_due`: it must give back some; `begins`: its next answer says so for the first time.
        """
        if begins or not is_due:
            member.stop_rebalance_timer()
        if begins and is_due:
            self.limit(group, member)

    def _expire_rebalance(self, group: GroupT, member: MemberT) -> None:
        member.rebalance_timer = None
        log.info(
            "the server removes member %r of group %r: it did not do its part of the rebalance in time",
            member.member_id,
            group.group_id,
        )
        self._remove(group, member)
