"""What may be dropped from a partition: three rules, in one function.

1. *Limits* of age and size (Kafka's `retention.ms`, `retention.bytes`): data goes, also unread.  The default, for
   topics of both protocols: what is older than seven days.
2. *Kept after acknowledgement* (Pulsar's retention policy), where one is set: how long and how much is kept of what all
   subscriptions that hold data have acknowledged.  It takes the place of the default limits; limits that were given for
   the topic itself stay.  "Nothing is kept" needs an acknowledgement: without any such subscription the limits decide,
   since Kafka's groups hold nothing, and would find nothing.
3. *Held by a subscription* that a Pulsar client made: what it has not acknowledged stays, whatever the other two say.

Whole ledgers are dropped, never parts.  The open one goes, too, where nothing is kept after acknowledgement, once all
of it is acknowledged and nothing is on its way into it: it would stay until it is full.  A topic with
`cleanup.policy=compact` alone keeps all.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from magnetar.broker.policy.model import Retention, TopicConfig

NO_LIMIT: Final = -1


class TrimLimits(NamedTuple):
    """As `ManagedLedger.trim` takes them: what is older goes, what makes the log larger; not from `held_from` on.

    `drops_open` is for the ledger that is open, which size alone never closes.
    """

    retention_ms: int
    retention_bytes: int
    held_from: int | None
    drops_open: bool = False


def trim_limits(
    config: TopicConfig, given: Collection[str], policy: Retention | None, held_from: int | None
) -> TrimLimits | None:
    """What may go of a partition; None for nothing.

    `given` are the names of the settings that were set for the topic itself; `held_from` is the first offset that some
    subscription holds, None when there is no subscription that holds data.
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
    """The smaller of two limits, of which negative ones are none."""
    return max(one, other) if one < 0 or other < 0 else min(one, other)
