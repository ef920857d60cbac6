"""Where acknowledgement time goes: a server that times its own disk calls, commits, pauses and stalls.

    python -m bench.trace REPORT standalone [the flags of `magnetar standalone`]

It is `magnetar` with timers around what can hold up an acknowledgement, and writes REPORT when it ends: for each kind
of event its count, quantiles and worst cases, then what else was under way while the slowest journal rounds were
written.  The timers cost a few microseconds each, so figures of a traced run are a little high.
"""

import functools
import gc
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from magnetar.cli.main import main as magnetar
from magnetar.metadata import sqlite
from magnetar.storage.local import catalogue, disk, journal, store

now = time.perf_counter
Event = tuple[float, float, int]
EVENTS: dict[str, list[Event]] = defaultdict(list)
"""By kind: begin and end in seconds, and bytes where that makes sense."""
ROUND = "journal write"
STALL = "loop: late by"
WORST = 12
STALL_PROBE_S = 0.001
WARM_UP_S = 10.0  # behind the first round: what comes earlier is not reported


def timed(kind: str, call: Callable[..., Any], size: Callable[..., int] = lambda *_: 0) -> Callable[..., Any]:
    events = EVENTS[kind]

    @functools.wraps(call)
    def timer(*arguments: Any, **options: Any) -> Any:
        begin = now()
        try:
            return call(*arguments, **options)
        finally:
            events.append((begin, now(), size(*arguments)))

    return timer


def install() -> None:
    """Put the timers in.  Files are told apart by the thread that uses them: one thread, one purpose."""

    def by_thread(what: str, call: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
        kinds: dict[str, Callable[..., Any]] = {}

        @functools.wraps(call)
        def timer(*arguments: Any, **options: Any) -> Any:
            name = threading.current_thread().name.removeprefix("magnetar-").rstrip("_0123456789")
            if name not in kinds:
                kinds[name] = timed(f"{name} {what}", call, size)
            return kinds[name](*arguments, **options)

        return timer

    file: Any = disk.RealFile
    file.write = by_thread("write", file.write, lambda _file, data, _position: len(data))
    file.read = by_thread("read", file.read, lambda _file, data, _position: len(data))
    for name in ("sync", "truncate", "close"):
        setattr(file, name, by_thread(name, getattr(file, name), lambda _file, *_: 0))
    whole: Any = disk.RealDisk
    for name in ("open", "remove", "sync_directory"):
        setattr(whole, name, by_thread(name, getattr(whole, name), lambda *_: 0))
    modules: Any = sqlite
    modules._write = timed("metadata commit", modules._write, lambda _connection, rows, _gone: len(rows))
    facts: Any = catalogue.Catalogue
    facts.commit = timed("catalogue commit", facts.commit, lambda _catalogue, some, *_: len(some))
    rounds: Any = journal.Journal
    rounds._report = timed("loop: report of rounds", rounds._report)
    whole_store: Any = store.LocalLedgerStore
    begins = whole_store._begin

    async def begin(self: Any, *arguments: Any) -> None:
        await begins(self, *arguments)
        probe_loop(self.loop)

    whole_store._begin = begin
    gc.callbacks.append(on_collection)


def probe_loop(loop: Any) -> None:
    """An event for each time that the loop comes late to a timer."""
    stalls = EVENTS[STALL]

    def tick(due: float) -> None:
        late = now()
        if late - due > STALL_PROBE_S:
            stalls.append((due, late, 0))
        loop.call_later(STALL_PROBE_S, tick, now() + STALL_PROBE_S)

    tick(now())


_collecting = 0.0


def on_collection(phase: str, info: dict[str, int]) -> None:
    global _collecting
    if phase == "start":
        _collecting = now()
    else:
        EVENTS[f"collector generation {info['generation']}"].append((_collecting, now(), 0))


def quantile(sorted_values: list[float], share: float) -> float:
    return sorted_values[min(int(share * len(sorted_values)), len(sorted_values) - 1)]


def report(seconds_from: float) -> str:
    lines = [f"{'event':32}{'count':>8}{'MB':>8}{'p50':>8}{'p90':>8}{'p99':>8}{'p99.9':>8}{'max':>8}  ms"]
    known = {kind: [e for e in events if e[0] >= seconds_from] for kind, events in EVENTS.items()}
    known = {kind: events for kind, events in sorted(known.items()) if events}
    for kind, events in known.items():
        took = sorted(end - begin for begin, end, _ in events)
        numbers = [quantile(took, share) * 1e3 for share in (0.5, 0.9, 0.99, 0.999, 1.0)]
        moved = sum(size for _, _, size in events) / 1e6
        lines.append(f"{kind:32}{len(took):8}{moved:8.1f}" + "".join(f"{number:8.2f}" for number in numbers))
    for kind in (ROUND, STALL):
        lines += ["", f"{kind}: count, p50, p99, most, by what overlapped it"]
        groups: dict[str, list[float]] = defaultdict(list)
        for begin, end, _ in known.get(kind, []):
            for other in overlapping(known, kind, begin, end) or ["nothing"]:
                groups[other].append(end - begin)
        for other, times in sorted(groups.items()):
            times.sort()
            numbers = [quantile(times, share) * 1e3 for share in (0.5, 0.99, 1.0)]
            lines.append(f"  {other:30}{len(times):8}" + "".join(f"{number:8.2f}" for number in numbers))
        lines += ["", f"{kind}: the worst"]
        for begin, end, size in sorted(known.get(kind, []), key=lambda event: event[0] - event[1])[:WORST]:
            shares = overlapping(known, kind, begin, end)
            beside = ", ".join(f"{other} {took * 1e3:.1f}" for other, took in shares.items()) or "nothing"
            lines.append(
                f"  {(end - begin) * 1e3:6.2f} ms{size:9} B at {begin - seconds_from:8.3f} s: {beside}"
            )
    return "\n".join(lines) + "\n"


def overlapping(known: dict[str, list[Event]], kind: str, begin: float, end: float) -> dict[str, float]:
    """What other kinds of events were under way between `begin` and `end`, and for how long."""
    found: dict[str, float] = {}
    for other, events in known.items():
        if other == kind:
            continue
        index = bisect_left(events, begin, key=lambda event: event[1])
        while index < len(events) and events[index][0] < end:
            found[other] = found.get(other, 0) + min(end, events[index][1]) - max(begin, events[index][0])
            index += 1
    return found


def main() -> None:
    target = Path(sys.argv.pop(1))
    install()
    try:
        magnetar()
    finally:
        rounds = EVENTS[ROUND]
        target.write_text(report(rounds[0][0] + WARM_UP_S if rounds else 0.0))


if __name__ == "__main__":
    main()
