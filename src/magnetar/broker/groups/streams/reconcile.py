"""How a member gets from its present tasks to its target, one heartbeat at a time (KIP-1071).

A member with tasks outside its target releases them first, and keeps its epoch until its heartbeat confirms that.
Then it gets the target's epoch, and those tasks of its target that are free.  It gets the others with later
heartbeats, when their holders have released them.  So a task changes its holder only when both members have confirmed
it, and no other member waits meanwhile.
"""

from magnetar.broker.groups.model import Tasks
from magnetar.broker.groups.streams.group import (
    NO_TASKS,
    NOTHING,
    Held,
    MemberState,
    StreamsGroup,
    StreamsMember,
)


def reconcile(group: StreamsGroup, member: StreamsMember, owned: Tasks | None) -> bool:
    """Take the member as far as it can go now; returns whether its assignment has changed.

    `owned`: the tasks that the member says it has; None if it does not say.
    """
    if member.member_id in group.reconciled:
        return False
    before = member.assigned.tasks
    if member.state is MemberState.UNREVOKED:
        if owned is None or member.revoking.overlaps(owned):
            return False
        group.hold(member, member.assigned, NOTHING)
    _advance(group, member, owned)
    if member.state is MemberState.STABLE and member.epoch == group.assignment_epoch:
        group.reconciled.add(member.member_id)
    return before != member.assigned.tasks


def owns_no_more_than(owned: Tasks | None, held: Held) -> bool:
    """Whether the member says what it has, and has only tasks that it got."""
    return owned is not None and owned.active <= held.active.keys() and owned.standby <= held.standby


def _advance(group: StreamsGroup, member: StreamsMember, owned: Tasks | None) -> None:
    target = group.target.get(member.member_id, NO_TASKS)
    assigned = member.assigned
    kept = Held(
        {task: since for task, since in assigned.active.items() if task in target.active},
        assigned.standby & target.standby,
    )
    revoked = Held(
        {task: since for task, since in assigned.active.items() if task not in target.active},
        assigned.standby - target.standby,
    )
    if revoked and (owned is None or revoked.overlaps(owned)):
        member.state = MemberState.UNREVOKED
        group.hold(member, kept, revoked)
        return
    if member.epoch != group.assignment_epoch:
        member.previous_epoch, member.epoch = member.epoch, group.assignment_epoch
    group.hold(member, kept, NOTHING)  # a released task is free, for itself in another role, too
    missing = target.active - kept.active.keys()
    active = {task: member.epoch for task in missing if group.is_free(task, member, as_active=True)}
    missing_standby = target.standby - kept.standby
    standby = {task for task in missing_standby if group.is_free(task, member, as_active=False)}
    is_complete = len(active) == len(missing) and len(standby) == len(missing_standby)
    member.state = MemberState.STABLE if is_complete else MemberState.UNRELEASED
    group.hold(member, Held({**kept.active, **active}, kept.standby | standby), NOTHING)
