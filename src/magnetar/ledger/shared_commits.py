"""Group commit over a `MetadataStore`: writes that wait at the same moment share one commit of the store.

A write is a list of operations that belong together, and a function that publishes them in memory.  The store commits
one round at a time; writes that arrive meanwhile form the next round.  What must stay true: a write is published, and
its future resolved, only after its round is durable, in the order in which writes were submitted.  Operations carry
no expected versions, because each path has one writer, this one.  So a round fails only if the store fails, and then
all of its writes fail.  A write that no store would take fails alone, and joins no round.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from magnetar.base.errors import MetadataError, MetadataLost, kept
from magnetar.metadata.store import Delete, MetadataStore, Put, check_operation

ROUND_OPERATIONS_MAX: Final = 5_000  # a write is never split, so a round may exceed this by one write

_Write = tuple[Sequence[Put | Delete], Callable[[], None], asyncio.Future[None]]


class SharedCommits:
    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: list[_Write] = []
        self._task: asyncio.Task[None] | None = None

    def submit(self, operations: Sequence[Put | Delete], publish: Callable[[], None]) -> asyncio.Future[None]:
        """Queue a write; the future is done when the write is durable and published, or fails with `MetadataError`."""
        future = asyncio.get_running_loop().create_future()
        try:
            for operation in operations:
                check_operation(operation)
        except MetadataError as refusal:  # only this write fails: the others of its round are good
            future.set_exception(kept(refusal))
            return future
        self._waiting.append((operations, publish, future))
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="shared-commits")
        return future

    async def close(self) -> None:
        """Wait until all submitted writes are durable or have failed."""
        while self._task is not None:
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        try:
            while self._waiting:
                await self._commit_round(self._take_round())
        finally:
            self._task = None
            for _, _, future in self._waiting:  # only when this task was cancelled
                _fail(future, MetadataError("the metadata store is closing"))
            self._waiting.clear()

    def _take_round(self) -> list[_Write]:
        count = size = 0
        for operations, _, _ in self._waiting:
            if size >= ROUND_OPERATIONS_MAX:
                break
            size += len(operations)
            count += 1
        writes = self._waiting[:count]
        del self._waiting[:count]
        return writes

    async def _commit_round(self, writes: list[_Write]) -> None:
        try:
            operations = [operation for operations, _, _ in writes for operation in operations]
            if operations:
                await self._store.commit(operations)
        except MetadataError as error:
            for _, _, future in writes:
                _fail(future, kept(error))
        except BaseException:
            for _, _, future in writes:
                _fail(
                    future,
                    MetadataLost("the metadata store failed; it is not known whether the write is kept"),
                )
            raise
        else:
            unforeseen: Exception | None = None
            for _, publish, future in writes:
                try:
                    publish()
                except Exception as error:  # noqa: BLE001  the other writes are durable, and their callers wait
                    unforeseen = unforeseen or error
                    _fail(future, MetadataLost("the write is kept, and the server could not go on with it"))
                if not future.done():
                    future.set_result(None)
            if unforeseen is not None:
                raise unforeseen


def _fail(future: asyncio.Future[None], error: MetadataError) -> None:
    """The caller may have gone, and then the loop would log an error that concerns no caller any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()
