"""Checks that every heartbeat of the consumer protocol must pass, whatever the state of its group (KIP-848)."""

from collections.abc import Sequence
from typing import Final

from magnetar.broker.groups.consumer.group import LEFT_FOR_NOW
from magnetar.broker.groups.consumer.patterns import InvalidPattern, matcher
from magnetar.broker.groups.consumer.subscription import subscription_size
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import ConsumerHeartbeat
from magnetar.broker.groups.settings import MEMBER_BYTES_MAX

JOIN: Final = 0
LEAVE: Final = -1
IDS_BYTES_MAX: Final = 4096  # of each id and name that a member chooses

Problem = tuple[GroupError, str]


def problem_of(request: ConsumerHeartbeat, assignors: Sequence[str]) -> Problem | None:
    """The error of a heartbeat, and the sentence for its client; None if the heartbeat is valid."""
    invalid = _invalid(request)
    if invalid is not None:
        return GroupError.INVALID_REQUEST, invalid
    if request.assignor is not None and request.assignor not in assignors:
        known = ", ".join(assignors)
        return (
            GroupError.UNSUPPORTED_ASSIGNOR,
            f"There is no assignor {request.assignor[:200]!r}, but: {known}.",
        )
    if request.pattern:
        try:
            matcher(request.pattern)
        except InvalidPattern as error:
            shown = f"{request.pattern[:200]!r}"
            return GroupError.INVALID_REGULAR_EXPRESSION, f"The pattern {shown} cannot be used: {error}."
    return None


def _invalid(request: ConsumerHeartbeat) -> str | None:
    named = {
        "group id": request.group_id,
        "member id": request.member_id,
        "instance id": request.instance_id,
        "rack id": request.rack_id,
    }
    for what, value in named.items():
        if value is not None and len(value) > IDS_BYTES_MAX:
            return f"The {what} is longer than {IDS_BYTES_MAX} letters."
        if value is not None and what != "member id" and not value.strip():
            return f"The {what} must not be empty."
    if request.epoch < LEFT_FOR_NOW:
        return "There is no such member epoch."
    if (request.epoch != JOIN or request.has_own_id) and not request.member_id.strip():
        return "The member id must not be empty."
    if request.epoch == LEFT_FOR_NOW and request.instance_id is None:
        return "A member without an instance id cannot leave for now."
    if request.epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            return "A member that joins must give its rebalance time-out."
        if request.owned is None or request.owned:
            return "A member that joins must say that it owns no partitions."
        if request.names is None and request.pattern is None:
            return "A member that joins must say what it subscribes to."
    if request.names is not None and subscription_size(request.names) > MEMBER_BYTES_MAX:
        return "The subscription is larger than the server keeps."
    return None
