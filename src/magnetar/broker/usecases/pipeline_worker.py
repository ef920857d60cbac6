"""What the pipelines' worker asks and reports: its lease, its orders, its reports, and tokens for its queries.

The worker is the server's own program.  Its door recognises it by its token, and lets no other program in here; so
these cases require no right and have no caller.  The worker has no rights elsewhere: its queries act as the owners of
their pipelines.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from magnetar.broker.cluster.model import Endpoint, Nodes
from magnetar.broker.jobs.model import Pipeline, WorkerSays
from magnetar.broker.jobs.pipelines import Pipelines


class PipelineWorkerCases:
    """See the module's text."""

    def __init__(self, pipelines: Pipelines, nodes: Nodes, listeners: Mapping[str, bool]) -> None:
        """`listeners` are the Kafka listeners that the worker may use, by name, and whether they use TLS."""
        self._pipelines = pipelines
        self._nodes = nodes
        self._listeners = listeners

    async def take_lease(self, worker: str, host: str, pid: int, place: str) -> int:
        """The epoch of the worker's lease.  Raises WorkerBusy, MetadataError."""
        return await self._pipelines.take_lease(worker, host, pid, place)

    @property
    def table_roots(self) -> Sequence[str]:
        """Folders and URLs inside which tables may be."""
        roots = self._pipelines.table_roots
        return [*roots.folders, *roots.urls]

    def kafka_endpoints(self, *, with_tls: bool) -> Iterable[Endpoint]:
        """One listener of each node, for the worker's Kafka clients: the first one with TLS, or without, as asked; if
        there is none, the first of all.
        """
        for node in self._nodes.all:
            fits = [one for name, one in node.advertised.items() if self._listeners.get(name) is with_tls]
            yield from (fits or list(node.advertised.values()))[:1]

    @property
    def version(self) -> str:
        """The version of what `orders` returns."""
        return self._pipelines.version

    async def orders(
        self, worker: str, epoch: int, known: str, wait_s: float
    ) -> tuple[str, Sequence[Pipeline]] | None:
        """All pipelines, with the version of that list; None if the version is `known` and does not change for
        `wait_s`.

        Raises:
            WorkerFenced
        """
        return await self._pipelines.orders(worker, epoch, known, wait_s)

    def tokens(self, worker: str, epoch: int, names: Collection[str]) -> Mapping[str, str]:
        """For each of these pipelines that exists: a token with which its query acts for its owner, for
        `OWNER_TOKEN_S` seconds.

        Raises:
            WorkerFenced
        """
        return self._pipelines.tokens(worker, epoch, names)

    async def report(self, worker: str, epoch: int, reports: Mapping[str, Any], says: WorkerSays) -> None:
        """What the worker reports of its pipelines, by name, and of itself.

        Raises:
            WorkerFenced, InvalidPipeline, MetadataError
        """
        await self._pipelines.reported(worker, epoch, reports, says)

    def end(self, worker: str, epoch: int) -> None:
        """The worker has stopped everything.  Raises WorkerFenced."""
        self._pipelines.end_lease(worker, epoch)
