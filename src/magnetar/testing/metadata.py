"""A `MetadataStore` in a dictionary, for tests and simulations.

It keeps every promise of the port except durability, and a test can control it.  After `hold()` writes wait until
`release()`, and `fail_next` makes writes fail as on a full disk.  `lose_answers` carries writes out whose callers do
not learn of it.  `commit_count` counts the commits, so that a test can distinguish shared commits from single ones.
"""

import asyncio
from collections.abc import Callable, Sequence

from magnetar.base.errors import BadVersion, MetadataError, MetadataLost
from magnetar.metadata.store import (
    ANY_VERSION,
    MUST_NOT_EXIST,
    Change,
    Check,
    CommitStep,
    Delete,
    Put,
    Versioned,
    check_operation,
)


class MemoryMetadataStore:
    """The port's behaviour over a dictionary; one event loop, nothing on disk."""

    def __init__(self) -> None:
        self._values: dict[str, Versioned] = {}
        self._watchers: list[tuple[str, Callable[[Change], None]]] = []
        self._gate = asyncio.Event()
        self._gate.set()
        self._closed = False
        self.fail_next = 0
        self.lose_answers = 0
        self.commit_count = 0

    def hold(self) -> None:
        """Let writes wait, as behind a slow disk, until `release`."""
        self._gate.clear()

    def release(self) -> None:
        self._gate.set()

    async def get(self, path: str) -> Versioned | None:
        self._check_open()
        return self._values.get(path)

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        self._check_open()
        return sorted((path, value) for path, value in self._values.items() if path.startswith(prefix))

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        await self.commit([Put(path, value, expected_version, ephemeral)])
        return self._values[path].version

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        await self.commit([Delete(path, expected_version)])

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        self._check_open()
        for operation in operations:
            check_operation(operation)
        await self._gate.wait()
        self.commit_count += 1
        if self.fail_next:
            self.fail_next -= 1
            raise MetadataError("the metadata store cannot write now")
        values = dict(self._values)
        changes = [self._apply(values, operation) for operation in operations]
        self._values = values
        for change in changes:
            for prefix, callback in list(self._watchers):
                if change is not None and change.path.startswith(prefix):
                    callback(change)
        if self.lose_answers:
            self.lose_answers -= 1
            raise MetadataLost("the connection to the metadata store was lost")

    @staticmethod
    def _apply(values: dict[str, Versioned], operation: CommitStep) -> Change | None:
        path, expected = operation.path, operation.expected_version
        current = values.get(path)
        found = MUST_NOT_EXIST if current is None else current.version
        if expected not in (ANY_VERSION, found):
            raise BadVersion(f"metadata path {path} was written by another writer")
        if isinstance(operation, Check):
            return None
        if isinstance(operation, Delete):
            return None if values.pop(path, None) is None else Change(path, None)
        written = Versioned(bytes(operation.value), 0 if current is None else current.version + 1)
        values[path] = written
        return Change(path, written)

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        entry = (prefix, callback)
        self._watchers.append(entry)

        def end() -> None:
            if entry in self._watchers:
                self._watchers.remove(entry)

        return end

    async def close(self) -> None:
        """Does nothing; ephemeral paths exist as long as this object."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise MetadataError("the metadata store is closed")
