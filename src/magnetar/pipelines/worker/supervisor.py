"""Keeps the pipelines in their desired states: takes orders and ends of queries from a queue, decides, lets helpers
act.

All slots belong to the thread of `run`.  Helper threads do what takes long (starting, stopping), and put the result
into the same queue.  The thread that reports reads a copy that is made after each change.
"""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Protocol

from magnetar.base.logging import get_logger
from magnetar.base.masking import scrubbed, secrets_in
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.worker import decisions
from magnetar.pipelines.worker.decisions import Action, Phase, Slot, Wanted
from magnetar.pipelines.worker.failures import explain, with_owner
from magnetar.pipelines.worker.queries import Running, SparkGone

log = get_logger(__name__)

LOOK_EVERY_S: Final = 0.5
HELPERS: Final = 4
STOP_S_MAX: Final = 20.0


class Runner(Protocol):
    """The port that starts and stops queries: `queries.Queries`, or a test's."""

    def start(self, pipeline: Pipeline, ended: Callable[[], None]) -> Running: ...

    def ended(self, running: Running) -> BaseException | None:
        """Why the query ended; None while it runs.  Raises SparkGone."""
        ...

    def stop(self, running: Running) -> None: ...

    def forget(self, name: str) -> None: ...

    def is_alive(self) -> bool: ...


@dataclass(slots=True)
class _Kept:
    slot: Slot
    pipeline: Pipeline
    running: Running | None = None


@dataclass(frozen=True, slots=True)
class _Started:
    name: str
    result: "Future[Running]"


@dataclass(frozen=True, slots=True)
class _Stopped:
    name: str
    result: "Future[None]"


@dataclass(frozen=True, slots=True)
class _Look:
    """A query has ended: find out which."""


class Supervisor:
    """See the module's text.  Orders, lists of pipelines, come in by `events`; `changed` is called after changes of
    state for which people wait.
    """

    def __init__(
        self,
        runner: Runner,
        events: "queue.SimpleQueue[Any]",
        changed: Callable[[], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._runner = runner
        self._events = events
        self._changed = changed
        self._now = monotonic
        self._wanted: dict[str, Pipeline] | None = None  # None until the first orders
        self._kept: dict[str, _Kept] = {}
        self._forgotten: dict[str, Pipeline] = {}
        self._reports: dict[str, tuple[dict[str, Any], _Kept | None]] = {}
        self._helpers = ThreadPoolExecutor(HELPERS, "pipelines")
        self._lock = threading.Lock()

    def run(self, stop: threading.Event, lost: Callable[[], str]) -> str:
        """Keep pipelines in their desired states until `stop` is set or `lost` says why the worker must stop; returns
        that reason.

        Raises:
            SparkGone: a new driver is needed.
        """
        while not stop.is_set():
            with suppress(queue.Empty):
                self.handle(self._events.get(timeout=LOOK_EVERY_S))
            reason = lost()
            if reason:
                return reason
            self.look()
            self.act()
        return ""

    # --- what happens

    def handle(self, event: Any) -> None:
        """Take in one event, and those after it in the queue."""
        while True:
            match event:
                case _Started():
                    self._was_started(event)
                case _Stopped():
                    self._was_stopped(event)
                case list():
                    self._wanted = {pipeline.name: pipeline for pipeline in event}
                    self._forgotten.clear()
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return

    def look(self) -> None:
        """Find queries that have ended; raises SparkGone if the JVM has ended."""
        if not self._runner.is_alive():
            raise SparkGone("the JVM has ended")
        for kept in self._kept.values():
            if kept.slot.phase is Phase.RUNNING and kept.running is not None:
                error = self._runner.ended(kept.running)
                if error is not None:
                    self._failed(kept, error)
        self._publish()

    def act(self) -> None:
        """Do the next action for each pipeline."""
        if self._wanted is None:
            return
        for name, pipeline in self._wanted.items():
            if name not in self._kept and name not in self._forgotten:
                self._kept[name] = _Kept(Slot(pipeline.id), pipeline)
        for name, kept in list(self._kept.items()):
            pipeline = self._wanted.get(name, kept.pipeline)
            known = name in self._wanted
            wanted = Wanted(pipeline.id, pipeline.run, pipeline.desired) if known else None
            match decisions.decide(wanted, kept.slot, self._now()):
                case Action.START:
                    kept.pipeline = pipeline
                    decisions.starting(kept.slot, pipeline.run)
                    log.info("pipeline starts", name=name, kind=pipeline.kind, run=pipeline.run)
                    self._start(pipeline)
                case Action.STOP:
                    decisions.stopping(kept.slot)
                    log.info("pipeline stops", name=name)
                    self._stop(name, kept.running)
                case Action.REST:
                    decisions.rest(kept.slot)
                case Action.FORGET:
                    self._forget(name, kept, pipeline)
                case Action.NOTHING:
                    continue
            self._publish(soon=True)

    # --- what is reported

    def reports(self) -> dict[str, dict[str, Any]]:
        """The state of each pipeline, by name; may be called from any thread."""
        now = self._now()
        with self._lock:
            rows = dict(self._reports)
        found = {}
        for name, (row, kept) in rows.items():
            status = {} if kept is None or kept.running is None else kept.running.progress.status(now)
            found[name] = {**row, "status": {**status, **row["status"]}}
        return found

    def _publish(self, *, soon: bool = False) -> None:
        rows: dict[str, tuple[dict[str, Any], _Kept | None]] = {}
        now = self._now()
        for name, kept in self._kept.items():
            slot = kept.slot
            status: dict[str, Any] = {
                "restarts": max(slot.start_count - 1, 0),
                "errors": slot.error_count,
            }
            if slot.failure_count:
                status["failures"] = slot.failure_count
            if slot.last_error:
                status["last_error"] = slot.last_error
                status["last_error_s_ago"] = round(now - slot.last_error_at, 1)
            if slot.phase is Phase.WAITING:
                status["retry_in_s"] = round(max(0.0, slot.retry_at - now), 1)
            row = {"id": slot.id, "run": slot.run, "state": decisions.state_of(slot), "status": status}
            if slot.phase is Phase.IDLE and self._wanted is not None and name in self._wanted:
                row["run"] = self._wanted[name].run  # it rests, after any run
            row["reason"] = slot.reason if slot.phase in (Phase.WAITING, Phase.FAILED) else ""
            rows[name] = row, kept
        for name, pipeline in self._forgotten.items():
            row = {"id": pipeline.id, "run": pipeline.run, "state": "STOPPED", "status": {}, "reason": ""}
            rows[name] = row, None
        with self._lock:
            self._reports = rows
        if soon:
            self._changed()

    # --- the end

    def close(self) -> bool:
        """Stop everything; returns whether all queries had stopped in time."""
        running = [kept.running for kept in self._kept.values() if kept.running is not None]
        stops = [self._helpers.submit(self._runner.stop, one) for one in running]
        late = wait(stops, STOP_S_MAX).not_done
        errors = [error for one in stops if one not in late and (error := one.exception()) is not None]
        for error in errors:
            log.warning("a pipeline did not stop as it should", error=error)
        if late:
            log.warning("pipelines did not stop in time", count=len(late))
        self._helpers.shutdown(wait=False, cancel_futures=True)
        return not late and not errors

    # inside

    def _start(self, pipeline: Pipeline) -> None:
        starting = self._helpers.submit(self._runner.start, pipeline, lambda: self._events.put(_Look()))
        starting.add_done_callback(lambda result: self._events.put(_Started(pipeline.name, result)))

    def _stop(self, name: str, running: Running | None) -> None:
        assert running is not None, name
        stopping = self._helpers.submit(self._runner.stop, running)
        stopping.add_done_callback(lambda result: self._events.put(_Stopped(name, result)))

    def _was_started(self, event: _Started) -> None:
        kept = self._kept[event.name]
        error = event.result.exception()
        if error is not None:
            self._failed(kept, error)
            return
        kept.running = event.result.result()
        decisions.started(kept.slot, self._now())
        log.info("pipeline runs", name=event.name)
        self._publish(soon=True)

    def _was_stopped(self, event: _Stopped) -> None:
        error = event.result.exception()
        if error is not None:
            # The query may still write, and nothing else in this JVM can stop it.
            raise SparkGone(f"the pipeline {event.name} does not stop: {error}")
        kept = self._kept[event.name]
        kept.running = None
        decisions.stopped(kept.slot)
        self._publish(soon=True)

    def _failed(self, kept: _Kept, error: BaseException) -> None:
        secrets = secrets_in(kept.pipeline.config)
        reason, may_help = explain(error)
        reason = scrubbed(with_owner(reason, kept.pipeline.owner), secrets)
        decisions.failed(kept.slot, reason, self._now(), may_help=may_help)
        name = kept.pipeline.name
        if may_help:
            again_in_s = round(kept.slot.retry_at - self._now(), 1)
            log.warning("pipeline failed", name=name, reason=reason, again_in_s=again_in_s)
        else:
            log.error("pipeline failed and is not tried again", name=name, reason=reason)
        log.debug("in full", name=name, error=scrubbed(str(error), secrets))
        if kept.running is not None:
            # Releases the session; the query itself has ended.
            self._helpers.submit(self._runner.stop, kept.running)
            kept.running = None
        self._publish(soon=True)

    def _forget(self, name: str, kept: _Kept, pipeline: Pipeline) -> None:
        assert self._wanted is not None
        log.info("pipeline is deleted, and has ended", name=name)
        del self._kept[name]
        current = self._wanted.get(name)
        if current is None or current.desired == "DELETED":
            self._runner.forget(name)
        if current is not None and current.desired == "DELETED":
            self._forgotten[name] = current  # the server waits for the report that it has stopped
