"""Pipelines: people declare, list, show, start, stop and delete them.

`pipeline_worker.py` has what their worker asks and reports.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from magnetar.base.clock import Clock
from magnetar.broker.jobs.errors import InvalidPipeline
from magnetar.broker.jobs.model import Holder, Pipeline, State, WorkerSays
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, pipeline_resource
from magnetar.replicators.naming import PIPELINES, named


@dataclass(frozen=True, slots=True)
class PipelineView:
    """A pipeline, what it does now and why, and the numbers that its worker last reported; `reported_ms` is None if
    the worker has reported nothing about it.
    """

    pipeline: Pipeline
    state: State
    reason: str
    status: Mapping[str, Any]
    reported_ms: int | None


@dataclass(frozen=True, slots=True)
class WorkerView:
    """The worker that runs the pipelines, and its last report about itself."""

    holder: Holder
    says: WorkerSays


class PipelineCases:
    """See the module's text."""

    def __init__(
        self, access: AccessControl, pipelines: Pipelines, namespaces: Namespaces, clock: Clock
    ) -> None:
        self._access = access
        self._pipelines = pipelines
        self._namespaces = namespaces
        self._clock = clock

    # --- looking -----------------------------------------------------------------------------------------------------

    def list(self, caller: Caller) -> Sequence[PipelineView]:
        """The pipelines that the caller may describe, by name."""
        return [
            self._view(one)
            for one in self._pipelines.all()
            if self._access.permits(caller, Operation.DESCRIBE, pipeline_resource(one.name))
        ]

    def describe(self, caller: Caller, name: str) -> PipelineView:
        """Raises PipelineNotAuthorized, PipelineNotFound."""
        self._access.require(caller, Operation.DESCRIBE, pipeline_resource(name))
        return self._view(self._pipelines.get(name))

    def worker(self, caller: Caller) -> WorkerView | None:
        """The worker that runs all pipelines, if one does.  Raises ClusterNotAuthorized."""
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        return self._worker()

    def worker_or_none(self, caller: Caller) -> WorkerView | None:
        """As `worker`, beside a list of pipelines; None also if the caller may not know."""
        return self._worker() if self._access.permits(caller, Operation.DESCRIBE, CLUSTER) else None

    # --- changing ----------------------------------------------------------------------------------------------------

    async def create(
        self,
        caller: Caller,
        name: str,
        kind: str,
        config: Mapping[str, Any],
        *,
        start: bool = True,
        namespace: str = "",
    ) -> PipelineView:
        """Declare a pipeline, which acts for the caller from now on, and start it if `start` is true.

        `namespace` is the one (`tenant/namespace`) to which the caller says it belongs, and which has to exist.
        Names of replicators' pipelines are the server's own: their subscriptions are those of others, too.

        Raises:
            PipelineNotAuthorized, NamespaceNotFound, InvalidPipeline, PipelineExists, MetadataError
        """
        async with self._access.change(
            caller, Operation.CREATE, pipeline_resource(name), Change.PIPELINE_CREATE, kind=kind, start=start
        ):
            if name.startswith(PIPELINES):
                raise InvalidPipeline(
                    f"the name {name[:100]!r} of a pipeline may not begin with {PIPELINES}: `magnetar namespaces"
                    " add-repl-config` declares replicators"
                )
            if namespace:
                self._namespaces.require(namespace)
            made = await self._pipelines.create(name, kind, config, caller.principal, start=start)
            return self._view(made)

    async def update(
        self,
        caller: Caller,
        name: str,
        change: Callable[[str, Mapping[str, Any]], Mapping[str, Any]],
    ) -> PipelineView:
        """Replace the configuration, and act for the caller from now on; a pipeline that runs is started again with
        it, where it was.

        `change` gets the kind and the present configuration, with its secrets, and returns the new one; what it
        raises is raised.

        Raises:
            PipelineNotAuthorized, PipelineNotFound, MetadataError
            InvalidPipeline: also if it is a replicator, whose namespace has its configuration.
        """
        async with self._access.change(
            caller, Operation.ALTER, pipeline_resource(name), Change.PIPELINE_UPDATE
        ):
            if named(name) is not None:
                raise InvalidPipeline(f"{name[:100]} is a replicator: its namespace has its configuration")
            before = self._pipelines.get(name)
            config = change(before.kind, before.config)
            return self._view(await self._pipelines.redeclare(name, config, caller.principal))

    async def start(self, caller: Caller, name: str) -> PipelineView:
        """Let the pipeline run.  Raises PipelineNotAuthorized, PipelineNotFound, MetadataError."""
        async with self._access.change(
            caller, Operation.ALTER, pipeline_resource(name), Change.PIPELINE_START
        ):
            return self._view(await self._pipelines.start(name))

    async def stop(self, caller: Caller, name: str) -> PipelineView:
        """Stop the pipeline where it is.  Raises as `start`."""
        async with self._access.change(
            caller, Operation.ALTER, pipeline_resource(name), Change.PIPELINE_STOP
        ):
            return self._view(await self._pipelines.stop(name))

    async def restart(self, caller: Caller, name: str) -> PipelineView:
        """Stop the pipeline, and let it run again.  Raises as `start`."""
        async with self._access.change(
            caller, Operation.ALTER, pipeline_resource(name), Change.PIPELINE_RESTART
        ):
            return self._view(await self._pipelines.restart(name))

    async def delete(self, caller: Caller, name: str, *, force: bool = False, wait_s: float = 0.0) -> bool:
        """Delete the pipeline.  True: it is deleted; false: the worker must stop it first, which `force` does not
        await, and for which this waits `wait_s`.

        Raises as `start`; also InvalidPipeline: it is a replicator, which its configuration would bring back.
        """
        async with self._access.change(
            caller, Operation.DELETE, pipeline_resource(name), Change.PIPELINE_DELETE, force=force
        ):
            if named(name) is not None:
                raise InvalidPipeline(
                    f"{name[:100]} is a replicator: `magnetar persistent deregister-replicator` takes it out"
                )
            deleted = self._pipelines.get(name)
            return await self._pipelines.delete(name, force=force) or await self._ended(deleted, wait_s)

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _ended(self, deleted: Pipeline, wait_s: float) -> bool:
        """Whether the pipeline is gone.  See `delete`."""
        until_s = self._clock.monotonic() + wait_s
        while (current := self._pipelines.find(deleted.name)) is not None and current.id == deleted.id:
            version, left_s = self._pipelines.version, until_s - self._clock.monotonic()
            if left_s > 0:
                await self._pipelines.wait_for_change(left_s)
            if self._pipelines.version == version:  # not in time, or the server is about to stop
                return False
        return True

    def _view(self, pipeline: Pipeline) -> PipelineView:
        state, reason = self._pipelines.state(pipeline)
        report = self._pipelines.report(pipeline)
        if report is None:
            return PipelineView(pipeline, state, reason, {}, None)
        return PipelineView(pipeline, state, reason, report.status, report.at_ms)

    def _worker(self) -> WorkerView | None:
        holder = self._pipelines.lease.holder
        return None if holder is None else WorkerView(holder, self._pipelines.worker)
