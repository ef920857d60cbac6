"""What retention may drop from a partition: three rules, in one function.

1. *Limits* of age and size (Kafka's `retention.ms`, `retention.bytes`) drop data, even unread data.  The default for
   topics of both protocols is seven days.
2. *Kept after acknowledgement* (Pulsar's retention policy), if it is set: how long and how many messages stay after
   all subscriptions that hold data have acknowledged them.  It replaces the default limits, but not limits of the topic
   itself.  If the policy keeps nothing and there is no such subscription, the limits decide: Kafka's groups hold no
   data, and would find none.
3. *Held by a subscription* of a Pulsar client: messages that it has not acknowledged stay in any case.

Whole ledgers are dropped, never parts.  If nothing is kept after acknowledgement, the open ledger is dropped, too, once
all its messages are acknowledged and no append is under way.  Otherwise it would stay until it is full.  A topic with
only `cleanup.policy=compact` keeps everything.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from magnetar.broker.policy.model import Retention, TopicConfig

NO_LIMIT: Final = -1


class TrimLimits(NamedTuple):
    """The limits for `ManagedLedger.trim`: the greatest age and size of the log, and the offset from which on all
    data stays.

    `drops_open`: the open ledger may be dropped, too.
    """

    retention_ms: int
    retention_bytes: int
    held_from: int | None
    drops_open: bool = False


def trim_limits(
    config: TopicConfig, given: Collection[str], policy: Retention | None, held_from: int | None
) -> TrimLimits | None:
    """What retention may drop from a partition; None for nothing.

    `given` are the names of the settings that are set for the topic itself; `held_from` is the first offset that a
    subscription holds, None if no subscription holds data.
    """
    if not config.delete:
        return None
    limits = TrimLimits(config.retention_ms, config.retention_bytes, held_from)
    if policy is not None and policy.time_ms == 0 and policy.size_bytes == 0:
        if held_from is not None:
            limits = TrimLimits(NO_LIMIT, 0, held_from, drops_open=True)
    elif policy is not None:
        limits = TrimLimits(
            _stricter(policy.time_ms, config.retention_ms if "retention.ms" in given else NO_LIMIT),
            _stricter(policy.size_bytes, config.retention_bytes if "retention.bytes" in given else NO_LIMIT),
            held_from,
        )
    return None if limits.retention_ms < 0 and limits.retention_bytes < 0 else limits


def _stricter(one: int, other: int) -> int:
    """The smaller of two limits; a negative number means no limit."""
    return max(one, other) if one < 0 or other < 0 else min(one, other)
