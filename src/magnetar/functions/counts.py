"""What an instance counts of its function, since its process began and in the last minute."""

import threading
import traceback
from collections import deque
from typing import Any, Final

from magnetar.base.clock import Clock

EXCEPTIONS_KEPT: Final = 10
_TEXT_CHARS_MAX: Final = 4000
METRICS_MAX: Final = 100
_MINUTE_S: Final = 60.0
_RECEIVED: Final = "receivedTotal"
_PROCESSED: Final = "processedSuccessfullyTotal"
_USER: Final = "userExceptionsTotal"
_SYSTEM: Final = "systemExceptionsTotal"
_COUNTS: Final = (_RECEIVED, _PROCESSED, _USER, _SYSTEM)


class Counts:
    """Threads share it: the client's, which send, and the function's."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._totals = dict.fromkeys(_COUNTS, 0)
        self._calls = 0
        self._spent_s = 0.0
        self._metrics: dict[str, float] = {}
        self._last_invocation_ms = 0
        self._exceptions: dict[str, deque[dict[str, Any]]] = {
            kind: deque(maxlen=EXCEPTIONS_KEPT) for kind in (_USER, _SYSTEM)
        }
        self._marks: deque[tuple[float, dict[str, int], int, float]] = deque()

    def received(self) -> None:
        with self._lock:
            self._totals[_RECEIVED] += 1
            self._last_invocation_ms = self._clock.now_ms()

    def called(self, spent_s: float) -> None:
        with self._lock:
            self._calls += 1
            self._spent_s += spent_s

    def processed(self) -> None:
        with self._lock:
            self._totals[_PROCESSED] += 1

    def user_exception(self, error: BaseException) -> None:
        """The function raised."""
        self._note(_USER, "".join(traceback.format_exception(error)))

    def system_exception(self, text: str) -> None:
        """Something else went wrong."""
        self._note(_SYSTEM, text)

    def metric(self, name: str, value: float) -> None:
        with self._lock:
            if f"{name}_sum" not in self._metrics and len(self._metrics) >= 2 * METRICS_MAX:
                return
            self._metrics[f"{name}_sum"] = self._metrics.get(f"{name}_sum", 0.0) + value
            self._metrics[f"{name}_count"] = self._metrics.get(f"{name}_count", 0.0) + 1

    def report(self) -> dict[str, Any]:
        """All of it, as the server takes it."""
        now = self._clock.monotonic()
        with self._lock:
            self._marks.append((now, dict(self._totals), self._calls, self._spent_s))
            while len(self._marks) > 1 and self._marks[1][0] <= now - _MINUTE_S:
                self._marks.popleft()
            at, totals, calls, spent_s = self._marks[0]
            if len(self._marks) == 1 or now - at < _MINUTE_S:  # the process is younger than a minute
                totals, calls, spent_s = dict.fromkeys(_COUNTS, 0), 0, 0.0
            recent = {name: self._totals[name] - totals[name] for name in _COUNTS}
            return {
                "numbers": self._totals | _latency(self._calls, self._spent_s),
                "one_minute": recent | _latency(self._calls - calls, self._spent_s - spent_s),
                "metrics": dict(self._metrics),
                "last_invocation_ms": self._last_invocation_ms,
                "user_exceptions": list(self._exceptions[_USER]),
                "system_exceptions": list(self._exceptions[_SYSTEM]),
            }

    def _note(self, kind: str, text: str) -> None:
        with self._lock:
            self._totals[kind] += 1
            self._exceptions[kind].append({"text": text[-_TEXT_CHARS_MAX:], "at_ms": self._clock.now_ms()})


def _latency(calls: int, spent_s: float) -> dict[str, float]:
    return {"avgProcessLatency": 1000 * spent_s / calls if calls else 0.0}
