"""Which worker runs the pipelines: one at a time, by a lease with an epoch.

A worker takes the lease before it starts anything, and renews it with each request and report.  If it is silent for
`LEASE_S`, another worker may take the lease with the next epoch; from then on everything that the first one sends is
refused with `WorkerFenced`.  A worker that cannot reach the server stops its pipelines before its lease can have
ended, so two workers never write to the same checkpoint.

A worker keeps its checkpoints in a directory that it has locked.  `place` is the name of such a directory of a machine.
A worker that names the same `place` as the holder has that lock now.  So the holder is dead, and the worker need not
wait for the lease to end.

The holder is in the metadata store.  After a restart the server gives it a whole lease, because it could not renew
anything meanwhile.
"""

import json
from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.jobs.errors import WorkerBusy, WorkerFenced
from magnetar.broker.jobs.model import LEASE_S, Holder
from magnetar.metadata.store import MetadataStore

_PATH: Final = "/pipelines-worker"


class WorkerLease:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._holder: Holder | None = None
        self._ends_at = 0.0

    async def load(self) -> None:
        """Read who held the lease; raises MetadataError."""
        stored = await self._metadata.get(_PATH)
        if stored is not None:
            document = json.loads(stored.value)
            self._holder = Holder(
                worker=document["worker"],
                epoch=document["epoch"],
                host=document["host"],
                pid=document["pid"],
                place=document["place"],
            )
            self._ends_at = self._clock.monotonic() + LEASE_S

    @property
    def holder(self) -> Holder | None:
        """The worker whose lease runs now."""
        return self._holder if self._clock.monotonic() < self._ends_at else None

    async def take(self, worker: str, host: str, pid: int, place: str) -> Holder:
        """Give the lease to `worker`, or renew it.

        Raises:
            WorkerBusy: another one has it.
            MetadataError
        """
        holder = self.holder
        if holder is not None and holder.worker != worker and holder.place != place:
            raise WorkerBusy(holder, self._ends_at - self._clock.monotonic())
        if holder is None or holder.worker != worker:
            epoch = self._holder.epoch + 1 if self._holder is not None else 1
            holder = Holder(worker, epoch, host, pid, place)
            document = {
                "v": 1,
                "worker": worker,
                "epoch": epoch,
                "host": host,
                "pid": pid,
                "place": place,
            }
            # Taken in memory first: no other one gets it while this is being written.
            before = self._holder, self._ends_at
            self._holder, self._ends_at = holder, self._clock.monotonic() + LEASE_S
            try:
                await self._metadata.put(_PATH, json.dumps(document).encode())
            except BaseException:
                if self._holder is holder:
                    self._holder, self._ends_at = before
                raise
        self._ends_at = self._clock.monotonic() + LEASE_S
        return holder

    def renew(self, worker: str, epoch: int) -> None:
        """The worker is alive: raises WorkerFenced if the lease is no longer its own.

        A lease that has ended, and that no other worker has taken since, is the worker's again.
        """
        if self._holder is None or (self._holder.worker, self._holder.epoch) != (worker, epoch):
            raise WorkerFenced("the lease of this worker has ended and another one has taken it")
        self._ends_at = self._clock.monotonic() + LEASE_S

    def end(self, worker: str, epoch: int) -> None:
        """The worker has stopped everything: the next one need not wait.  Raises as `renew`."""
        self.renew(worker, epoch)
        self._ends_at = self._clock.monotonic()
