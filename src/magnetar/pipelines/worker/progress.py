"""The numbers of a running pipeline, from Spark's progress events to the reported status.

An event is about one micro-batch.  Lag is the number of offsets of a partition between the end of the last batch and
the end of the log when that batch was planned.  Lag in seconds says how long ago the logs ended where the pipeline is
now, as far as this worker has seen them grow.  For a backlog from before, it counts the time since the pipeline
started.
"""

import json
from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final

BATCHES_KEPT: Final = 100
RATE_S: Final = 15.0
ENDS_KEPT: Final = 512
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
        self._ends = Ends()

    def add(self, event: Mapping[str, Any], now: float) -> None:
        """Count one batch; `event` is Spark's StreamingQueryProgress as an object."""
        sources = event.get("sources") or ()
        rows = offsets_of(sources) if self._counts_offsets else int(event.get("numInputRows") or 0)
        durations = event.get("durationMs") or {}
        lags = lags_of(sources)
        if lags is not None:
            self._lags = lags
            end = end_of(sources)
            self._ends.add(end, end - sum(lags.values()), now)
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
            status["lag_s"] = round(self._ends.behind_s(now), 1)
            status["lags"] = dict(sorted(furthest))
        if self._trigger_ms:
            ordered = sorted(self._trigger_ms)
            status["batch_ms"] = {"median": ordered[len(ordered) // 2], "max": ordered[-1]}
            status["durations_ms"] = self._durations
            status["last_batch"] = self._last
        return status


class Ends:
    """Where the logs of a pipeline ended, and when: the sum of their partitions' ends, in at most `ENDS_KEPT` rows."""

    def __init__(self) -> None:
        self._rows: list[tuple[float, int]] = []  # (seconds, end): those that the pipeline has not reached

    def add(self, end: int, reached: int, now: float) -> None:
        """The logs end at `end` now, and the pipeline has reached `reached`."""
        rows = self._rows
        while rows and rows[-1][1] >= end:  # nothing has come, or a topic was deleted
            now, _ = rows.pop()
        rows.append((now, end))
        del rows[: bisect_right(rows, reached, key=itemgetter(1))]
        if len(rows) > ENDS_KEPT:  # that one goes whose neighbours are closest to each other
            del rows[min(range(1, len(rows) - 1), key=lambda at: rows[at + 1][0] - rows[at - 1][0])]

    def __len__(self) -> int:
        return len(self._rows)

    def behind_s(self, now: float) -> float:
        """How long the next record for the pipeline has been there, in seconds; 0 if there is none."""
        return now - self._rows[0][0] if self._rows else 0.0


def end_of(sources: Any) -> int:
    """The sum of all partitions' ends, of the sources that say how far their logs reach and how far they have read."""
    return sum(
        sum(latest.values())
        for source in sources
        if (latest := _offsets(source.get("latestOffset"))) is not None
        and _offsets(source.get("endOffset")) is not None
    )


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
