"""Declared pipelines: what they are, what is wanted of them, and what the worker says of them.

The broker runs none of them: it stores a name, a kind and a configuration, and hands them to the worker, which checks
them, runs them and reports.  Of kinds it knows only that some have a path, which must be where tables may lie.
Stored, as JSON::

    /pipelines/<name>   {"v": 3, "id": "...", "kind": "...", "sealed": "...", "desired": "RUNNING", "run": 1,
                         "created_ms": ..., "owner": ["User", "alice"]}

The configuration is sealed as a whole (`security/sealing.py`), as any value in it may be a secret.  If an earlier
version has stored it unsealed, the server seals it at the start.  A configuration that the server cannot open keeps its
pipeline from running, and nothing else.

The owner is the principal that declared it: its query asks for everything as that principal, by tokens that are made
here (`owner_tokens.py`).  A pipeline that version 1 stored has no owner, and belongs to ANONYMOUS.

`desired` is RUNNING, STOPPED or DELETED.  `run` grows with each start and restart that a user asks for, so that a
worker can tell "still wanted" from "wanted again". `id` tells a pipeline from an earlier one of the same name, whose
checkpoint is of no use to it.  A deleted pipeline stays until the worker has let go of it, or at once when there is no
worker; its subscription, `pipeline-<name>`, goes in the same step.

Pipelines that the server declares for replicators have names of their own (`replicators/naming.py`).  Each has one
topic, and is deleted in the transaction that deletes the topic.  It keeps its place in a subscription, which
replicators of the same type and region use in other topics.

Reports are kept in memory only: they are old after seconds, and a worker repeats them.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.base.masking import scrubbed, secrets_in
from magnetar.base.secret import secret_bytes
from magnetar.base.settings_sealing import OLD_SECRETS_KEY
from magnetar.base.table_roots import TableRoots
from magnetar.broker.jobs.declarations import (
    NAME_CHARS_MAX,
    check_kind,
    check_name,
    check_path,
    checked_report,
    checked_size,
)
from magnetar.broker.jobs.errors import InvalidPipeline, PipelineExists, PipelineNotFound
from magnetar.broker.jobs.model import Desired, Pipeline, PipelineKeys, Report, State, WorkerSays
from magnetar.broker.jobs.owner_tokens import OwnerTokens
from magnetar.broker.jobs.read_bytes import ReadBytes
from magnetar.broker.jobs.worker_lease import WorkerLease
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Principal
from magnetar.broker.security.sealing import CannotOpen, Sealer
from magnetar.broker.security.withdrawals import Withdrawals
from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore
from magnetar.replicators.naming import named, pipeline_name, replicator_of

log = logging.getLogger(__name__)

ROOT: Final = "/pipelines/"
PIPELINES_MAX: Final = 1000
CONFIGS_BYTES_MAX: Final = 8 << 20  # of all together: a worker gets them in one answer
WAIT_S_MAX: Final = 10.0


class Pipelines:
    """All pipelines of a cluster.  Reads are answered from memory; changes are durable when they return.

    Changes raise MetadataError when they cannot be stored.
    """

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        cursors: CursorStore,
        table_roots: TableRoots = TableRoots(),  # noqa: B008  it cannot change
        keys: PipelineKeys = PipelineKeys(),  # noqa: B008
    ) -> None:
        """Without `keys`, what they protect does not outlive this process."""
        self.lease = WorkerLease(metadata, clock)
        self.worker = WorkerSays()
        self.read_bytes = ReadBytes(self.find)
        self.withdrawals = Withdrawals()
        self.table_roots = table_roots
        self._tokens = OwnerTokens(keys.of_tokens or secret_bytes(32), clock)
        self._sealer = Sealer(keys.sealing or secret_bytes(32), keys.old_sealing)
        self._metadata = metadata
        self._clock = clock
        self._cursors = cursors
        self._pipelines: dict[str, Pipeline] = {}
        self._config_sizes: dict[str, int] = {}  # in bytes: to write all of them again would take long
        self._reports: dict[str, Report] = {}
        self._changing = asyncio.Lock()
        self._instance = randomness.hex_token(4)  # versions of another start of the server mean nothing here
        self._changes = 0
        self._waiting: set[asyncio.Future[None]] = set()

    async def load(self) -> None:
        """Read everything; MetadataError."""
        found = await self._metadata.scan(ROOT)
        if found:
            await self._sealer.prepare()
        for path, stored in found:
            name = path.removeprefix(ROOT)
            await self._load(Pipeline.decode(name, stored.value))
        await self.lease.load()

    async def _load(self, stored: Pipeline) -> None:
        """Open the sealed configuration; seal it if it is not sealed, or not with the current key."""
        if not stored.sealed:
            await self._store(self._sealed(stored))
            return
        try:
            opened = self._sealer.open(stored.seal, stored.sealed)
        except CannotOpen as error:
            trouble = (
                f"its configuration cannot be opened: {error}; give that key as {OLD_SECRETS_KEY} at a start"
            )
            log.warning("pipeline %s cannot run: %s", stored.name, trouble)
            self._keep(replace(stored, trouble=trouble))
            return
        pipeline = replace(stored, config=json.loads(opened.data))
        if opened.is_old:
            await self._store(self._sealed(pipeline))
        else:
            self._keep(pipeline)

    def _sealed(self, pipeline: Pipeline) -> Pipeline:
        return replace(
            pipeline, sealed=self._sealer.seal(pipeline.seal, json.dumps(pipeline.config).encode())
        )

    # --- for users, who declare them ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._pipelines)

    def all(self) -> list[Pipeline]:
        """In order of name."""
        return [self._pipelines[name] for name in sorted(self._pipelines)]

    def get(self, name: str) -> Pipeline:
        """The pipeline; raises PipelineNotFound if there is none."""
        found = self._pipelines.get(name)
        if found is None:
            raise PipelineNotFound(f"there is no pipeline {name[:NAME_CHARS_MAX]}")
        return found

    def find(self, name: str) -> Pipeline | None:
        return self._pipelines.get(name)

    async def create(
        self, name: str, kind: str, config: Mapping[str, Any], owner: Principal, *, start: bool = True
    ) -> Pipeline:
        """Declare a pipeline, which acts for `owner`.

        Raises:
            InvalidPipeline: the name, the kind or the size of the configuration is not allowed.
            PipelineExists
        """
        check_name(name)
        check_kind(kind)
        check_path(kind, config, self.table_roots)
        size = checked_size(config)
        await self._sealer.prepare()
        async with self._changing:
            if name in self._pipelines:
                going = self._pipelines[name].desired is Desired.DELETED
                raise PipelineExists(
                    f"the pipeline {name} is still being deleted: try again in a moment"
                    if going
                    else f"there is a pipeline {name} already"
                )
            if len(self._pipelines) >= PIPELINES_MAX:
                raise InvalidPipeline(f"there are {PIPELINES_MAX} pipelines: no more are allowed")
            self._check_room(size)
            desired = Desired.RUNNING if start else Desired.STOPPED
            made = Pipeline(
                name, randomness.hex_token(8), kind, config, desired, 1, self._clock.now_ms(), owner
            )
            made = self._sealed(made)
            await self._store(made)
        return made

    async def redeclare(self, name: str, config: Mapping[str, Any], owner: Principal) -> Pipeline:
        """Replace the configuration and the owner; a pipeline that runs is started again with them, where it was.

        Raises:
            PipelineNotFound
            InvalidPipeline: the configuration is too large, or names a path outside of the roots.
        """
        check_path(self.get(name).kind, config, self.table_roots)
        size = checked_size(config)
        await self._sealer.prepare()
        async with self._changing:
            before = self._not_deleted(name)
            self._check_room(size - self._config_sizes[name])
            run = before.run + 1 if before.desired is Desired.RUNNING else before.run
            changed = self._sealed(replace(before, config=config, owner=owner, run=run, trouble=""))
            await self._replace(before, changed)
        return changed

    async def start(self, name: str) -> Pipeline:
        """Let the pipeline run; a failed one tries again.  Raises PipelineNotFound."""
        return await self._desire(name, Desired.RUNNING, again=self.state(self.get(name))[0] is State.FAILED)

    async def stop(self, name: str) -> Pipeline:
        """Stop the pipeline where it is.  Raises PipelineNotFound."""
        return await self._desire(name, Desired.STOPPED)

    async def restart(self, name: str) -> Pipeline:
        """Stop the pipeline if it runs, and let it run from where it was.  Raises PipelineNotFound."""
        return await self._desire(name, Desired.RUNNING, again=True)

    async def delete(self, name: str, *, force: bool = False) -> bool:
        """Delete the pipeline and its subscription: now (true), or as soon as the worker has stopped it (false).

        `force` does not wait for the worker.  Raises PipelineNotFound.
        """
        pipeline = self.get(name)
        if self.lease.holder is None or force:
            await self._forget(pipeline)
            return True
        await self._desire(name, Desired.DELETED)
        return False

    # --- with its topic ----------------------------------------------------------------------------------------------

    def replicators_of(self, topic: str) -> list[Pipeline]:
        """The pipelines that the server has declared for replicators of a topic."""
        return [one for one in self.all() if _replicates(one.name, topic)]

    def is_of_replicator(self, subscription: str, topic: str) -> bool:
        """Whether a subscription of a topic is that of a replicator, whose consumer leaves with the topic."""
        found = replicator_of(subscription)
        return found is not None and pipeline_name(found.type, found.region, topic) in self._pipelines

    def deletion_of(self, topic: str) -> list[Delete]:
        """What belongs into the transaction that deletes a topic; `forget_topic` is called once that is durable."""
        return [Delete(ROOT + one.name, ANY_VERSION) for one in self.replicators_of(topic)]

    def forget_topic(self, topic: str) -> None:
        """The topic was deleted: so are the pipelines of its replicators.  The worker stops pipelines that
        are no longer in its orders.
        """
        for one in self.replicators_of(topic):
            self._forgotten(one.name)

    # --- what it does ------------------------------------------------------------------------------------------------

    def state(self, pipeline: Pipeline) -> tuple[State, str]:
        """What the pipeline does now, and why if that is not the desired state."""
        if pipeline.desired is Desired.DELETED:
            return State.DELETING, ""
        if pipeline.trouble and pipeline.desired is not Desired.STOPPED:
            return State.FAILED, pipeline.trouble
        report = self._current(pipeline)
        if self.lease.holder is None or self.worker.trouble:
            if pipeline.desired is Desired.STOPPED:
                return State.STOPPED, ""
            if self.worker.trouble:
                return State.FAILED, self.worker.trouble
            state = State.CREATED if report is None else State.STARTING
            return state, "no worker runs: `magnetar worker` starts one"
        if report is not None and report.run == pipeline.run:
            return report.state, report.reason
        if pipeline.desired is Desired.STOPPED:
            return State.STOPPED, ""
        return State.STARTING, self._busy_with()

    def report(self, pipeline: Pipeline) -> Report | None:
        """The worker's last report of this pipeline, with `bytes` in its status (`read_bytes.py`)."""
        found = self._current(pipeline)
        if found is None:
            return None
        return replace(found, status={**found.status, "bytes": self.read_bytes.of(pipeline.name)})

    # --- for the worker ----------------------------------------------------------------------------------------------

    async def take_lease(self, worker: str, host: str, pid: int, place: str) -> int:
        """The epoch of `worker`'s lease.  Raises as `WorkerLease.take`."""
        before = self.lease.holder
        holder = await self.lease.take(worker, host, pid, place)
        if before is None or before.epoch != holder.epoch:
            self._reports.clear()
            self.worker = WorkerSays(at_ms=self._clock.now_ms())
            self.withdrawals.happened()
        return holder.epoch

    def end_lease(self, worker: str, epoch: int) -> None:
        """The worker has stopped everything.  Raises WorkerFenced."""
        self.lease.end(worker, epoch)
        self.withdrawals.happened()

    async def orders(
        self, worker: str, epoch: int, known: str, wait_s: float
    ) -> tuple[str, list[Pipeline]] | None:
        """All pipelines, with the version of that list; None if the version is `known` and does not change for
        `wait_s`.

        Raises WorkerFenced.
        """
        self.lease.renew(worker, epoch)
        if known == self.version and wait_s > 0:
            await self.wait_for_change(min(wait_s, WAIT_S_MAX))
            self.lease.renew(worker, epoch)
        return None if known == self.version else (self.version, [_to_run(one) for one in self.all()])

    async def wait_for_change(self, wait_s: float) -> None:
        """Return at the next change of a pipeline, after `wait_s`, or when the server is about to stop."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(changed)
        timer = self._clock.call_later(wait_s, self._wake, changed)
        try:
            await changed
        finally:
            timer.cancel()
            self._waiting.discard(changed)

    async def reported(self, worker: str, epoch: int, reports: Mapping[str, Any], says: WorkerSays) -> None:
        """Take the worker's report of its pipelines, by name; reports of deleted ones are ignored.

        Raises:
            WorkerFenced, MetadataError
            InvalidPipeline: a report has not the form of one.
        """
        self.lease.renew(worker, epoch)
        says.at_ms = self._clock.now_ms()
        checked = {name: checked_report(content, says.at_ms) for name, content in reports.items()}
        self.worker = says
        for name, report in checked.items():
            pipeline = self._pipelines.get(name)
            if pipeline is None or pipeline.id != report.id:
                continue
            secrets = secrets_in(pipeline.config)  # what a library says of its options may have them in it
            reason, status = scrubbed(report.reason, secrets), scrubbed(report.status, secrets)
            self._reports[name] = replace(report, reason=reason, status=status)
            if pipeline.desired is Desired.DELETED and report.state is State.STOPPED:
                await self._forget(pipeline)
            if self._has_stopped(pipeline):
                self.withdrawals.happened()

    def tokens(self, worker: str, epoch: int, names: Collection[str]) -> Mapping[str, str]:
        """For each of these pipelines that exists: a new token with which its query acts for its owner.

        Raises WorkerFenced.
        """
        self.lease.renew(worker, epoch)
        found = (self._pipelines.get(name) for name in names)
        return {one.name: self._tokens.make(one, epoch) for one in found if one is not None}

    def speaking(self, token: str) -> tuple[Pipeline, int, float]:
        """The pipeline whose query shows this token, the epoch of the worker's lease, and when the token ends, of the
        monotonic clock.

        Raises:
            AuthenticationFailed: none does.
        """
        pipeline, holder = self._pipelines.get(self._tokens.name_in(token)), self.lease.holder
        if pipeline is None or holder is None or self._has_stopped(pipeline):
            raise AuthenticationFailed("no worker runs the pipeline that its token is of")
        return pipeline, holder.epoch, self._tokens.check(token, pipeline, holder.epoch)

    def is_run_by(self, pipeline: Pipeline, epoch: int) -> bool:
        """Whether the pipeline still exists and has not stopped, and the worker whose lease has this epoch still holds
        it.
        """
        current, holder = self._pipelines.get(pipeline.name), self.lease.holder
        if current is None or current.id != pipeline.id or self._has_stopped(current):
            return False
        return holder is not None and holder.epoch == epoch

    @property
    def version(self) -> str:
        return f"{self._instance}-{self._changes}"

    def release_waiting(self) -> None:
        """Answer a worker that waits for orders: the server is about to stop."""
        for changed in self._waiting:
            self._wake(changed)

    # inside

    def _busy_with(self) -> str:
        """What the worker does before it runs any pipeline; empty once it runs them."""
        state, progress = (str(self.worker.about.get(key) or "")[:500] for key in ("state", "progress"))
        if not state or state == "runs":
            return ""
        return f"the worker {state}: {progress}" if progress else f"the worker {state}"

    def _has_stopped(self, pipeline: Pipeline) -> bool:
        """Whether the worker has said that it has stopped the pipeline as it was asked to, so that nothing runs it."""
        report = self._current(pipeline)
        is_stopped = report is not None and report.state is State.STOPPED and report.run == pipeline.run
        return is_stopped and pipeline.desired is Desired.STOPPED

    def _current(self, pipeline: Pipeline) -> Report | None:
        report = self._reports.get(pipeline.name)
        return report if report is not None and report.id == pipeline.id else None

    async def _desire(self, name: str, desired: Desired, *, again: bool = False) -> Pipeline:
        async with self._changing:
            before = self._not_deleted(name)
            if before.desired is desired and not again:
                return before
            starts = desired is Desired.RUNNING
            changed = replace(before, desired=desired, run=before.run + 1 if starts else before.run)
            await self._replace(before, changed)
        return changed

    def _not_deleted(self, name: str) -> Pipeline:
        found = self.get(name)
        if found.desired is Desired.DELETED:
            raise PipelineNotFound(f"the pipeline {name} is being deleted")
        return found

    def _check_room(self, added_bytes: int) -> None:
        if added_bytes + sum(self._config_sizes.values()) > CONFIGS_BYTES_MAX:
            raise InvalidPipeline(f"the configs of all pipelines exceed {CONFIGS_BYTES_MAX} bytes together")

    async def _replace(self, before: Pipeline, changed: Pipeline) -> None:
        await self._metadata.put(ROOT + changed.name, changed.encode())
        if self._pipelines.get(changed.name) is not before:  # it was deleted with its topic meanwhile
            await self._metadata.commit([Delete(ROOT + changed.name, ANY_VERSION)])
            raise PipelineNotFound(f"the pipeline {changed.name} was deleted with its topic")
        self._keep(changed)
        self._changed()

    async def _store(self, pipeline: Pipeline) -> None:
        await self._metadata.put(ROOT + pipeline.name, pipeline.encode())
        self._keep(pipeline)
        self._changed()

    def _keep(self, pipeline: Pipeline) -> None:
        self._pipelines[pipeline.name] = pipeline
        self._config_sizes[pipeline.name] = len(json.dumps(pipeline.config))

    async def _forget(self, pipeline: Pipeline) -> None:
        async with self._changing:
            current = self._pipelines.get(pipeline.name)
            if current is None or current.id != pipeline.id:
                return
            also = [Delete(ROOT + pipeline.name, ANY_VERSION)]
            if named(pipeline.name) is None:
                await self._cursors.drop_subscription(pipeline.subscription, also)
            else:
                await self._cursors.drop(self._place_of_replicator(pipeline), also)
            self._forgotten(pipeline.name)

    def _place_of_replicator(self, pipeline: Pipeline) -> list[CursorKey]:
        """Where its subscription is in its topic; the topic is found by the name, as the configuration may not open."""
        subscription = pipeline.subscription
        topics = self._cursors.subscription(subscription)
        return [
            CursorKey(subscription, topic, index)
            for topic, partitions in topics.items()
            if _replicates(pipeline.name, topic)
            for index in partitions
        ]

    def _forgotten(self, name: str) -> None:
        if self._pipelines.pop(name, None) is not None:
            del self._config_sizes[name]
            self._reports.pop(name, None)
            self.read_bytes.forget(name)
            self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self.release_waiting()
        self.withdrawals.happened()

    @staticmethod
    def _wake(changed: asyncio.Future[None]) -> None:
        if not changed.done():
            changed.set_result(None)


def _replicates(pipeline: str, topic: str) -> bool:
    """Whether a pipeline, by its name, is that of a replicator of a topic."""
    found = named(pipeline)
    return found is not None and pipeline_name(found.type, found.region, topic) == pipeline


def _to_run(pipeline: Pipeline) -> Pipeline:
    """What the worker gets of a pipeline.  It gets even one that cannot run, because it forgets for good what is not
    in the list.
    """
    may_run = not pipeline.trouble or pipeline.desired is not Desired.RUNNING
    return pipeline if may_run else replace(pipeline, desired=Desired.STOPPED)
