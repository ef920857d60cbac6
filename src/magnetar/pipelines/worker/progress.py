"""The numbers of a running pipeline, from Spark's progress events to the reported status.

An event is about one micro-batch.  Lag is the number of offsets of a partition between the end of the last batch and
the end of the log when that batch was planned.
"""

import json
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

BATCHES_KEPT: Final = 100
RATE_S: Final = 15.0
PARTITIONS_SHOWN: Final = 200  # those with the greatest lag, because a report has a limit

_DURATIONS: Final = (
    "triggerExecution",
    "latestOffset",
    "queryPlanning",
    "walCommit",
    "addBatch",
    "commitOffsets",
)


class Progress:
    """The numbers of one pipeline since this worker began to run it.  Times are seconds of the monotonic clock.

    With `counts_offsets` rows are the offsets that a batch covers, not what Spark counts.  Spark does not say where
    the first batch of a checkpoint begins, so for that batch the number is 0.
    """

    def __init__(self, *, counts_offsets: bool = False) -> None:
        self._counts_offsets = counts_offsets
        self.row_count = 0
        self.batch_count = 0
        self._last: dict[str, Any] = {}
        self._durations: dict[str, int] = {}
        self._trigger_ms: deque[int] = deque(maxlen=BATCHES_KEPT)
        self._recent: deque[tuple[float, int]] = deque()
        self._lags: dict[str, int] | None = None

    def add(self, event: Mapping[str, Any], now: float) -> None:
        """Count one batch; `event` is Spark's StreamingQueryProgress as an object."""
        sources = event.get("sources") or ()
        rows = offsets_of(sources) if self._counts_offsets else int(event.get("numInputRows") or 0)
        durations = event.get("durationMs") or {}
        lags = lags_of(sources)
        if lags is not None:
            self._lags = lags
        if "addBatch" not in durations and rows == 0:
            return  # a trigger without records
        self.row_count += rows
        self.batch_count += 1
        trigger_ms = int(durations.get("triggerExecution") or 0)
        self._trigger_ms.append(trigger_ms)
        self._recent.append((now, rows))
        while len(self._recent) > 1 and self._recent[0][0] < now - RATE_S:
            self._recent.popleft()
        self._durations = {name: int(durations[name]) for name in _DURATIONS if name in durations}
        self._last = {
            "id": event.get("batchId"),
            "rows": rows,
            "duration_ms": trigger_ms,
            "at": event.get("timestamp"),
        }

    def status(self, now: float) -> dict[str, Any]:
        """The numbers in the form in which they are reported."""
        recent = sum(rows for at, rows in self._recent if at >= now - RATE_S)
        status: dict[str, Any] = {
            "rows": self.row_count,
            "batches": self.batch_count,
            "rows_per_second": round(recent / RATE_S, 1),
        }
        if self._lags is not None:
            furthest = sorted(self._lags.items(), key=lambda item: -item[1])[:PARTITIONS_SHOWN]
            status["lag"] = sum(self._lags.values())
            status["lags"] = dict(sorted(furthest))
        if self._trigger_ms:
            ordered = sorted(self._trigger_ms)
            status["batch_ms"] = {"median": ordered[len(ordered) // 2], "max": ordered[-1]}
            status["durations_ms"] = self._durations
            status["last_batch"] = self._last
        return status


def lags_of(sources: Any) -> dict[str, int] | None:
    """{topic-partition: offsets behind}; None if no source says how far its log reaches."""
    lags: dict[str, int] = {}
    known = False
    for source in sources:
        latest, reached = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
        if latest is None or reached is None:
            continue
        known = True
        for partition, end in latest.items():
            lags[partition] = max(0, end - reached.get(partition, 0))
    return lags if known else None


def offsets_of(sources: Any) -> int:
    """How many offsets a batch covers."""
    count = 0
    for source in sources:
        began = _offsets(source.get("startOffset")) or {}
        for partition, end in (_offsets(source.get("endOffset")) or {}).items():
            count += max(0, end - began.get(partition, 0))
    return count


def _offsets(text: Any) -> dict[str, int] | None:
    """Offsets in the form of our source, {"topic": {"0": 23}}, by topic-partition; None if `text` has another form."""
    try:
        found = json.loads(text) if isinstance(text, str) else text
        return {
            f"{topic}-{partition}": int(offset)
            for topic, partitions in found.items()
            for partition, offset in partitions.items()
        }
    except (ValueError, TypeError, AttributeError):
        return None
