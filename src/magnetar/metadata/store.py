"""The `MetadataStore` port: small values under slash-separated paths, with versions and watches.

What a store promises:

* A write is durable when its coroutine returns.  Versions decide every race: `put` with `expected_version` is a
  compare-and-set, and `put` with `MUST_NOT_EXIST` creates.  A write that loses raises `BadVersion` and changes nothing.
* A path's version starts at 0 and grows by one with each write; a deleted and re-created path starts at 0 again.
* `commit` applies several writes or none.  A `Check` among them lets all of them depend on a path that it leaves as
  it is; a commit of nothing but checks only asks.
* The store removes an ephemeral path when the session that wrote it ends (for the embedded store: when the process
  ends).
* Watchers run on the event loop after the change is durable, in the order of the changes, and never see one twice.

Values are opaque bytes of at most `VALUE_BYTES_MAX`; paths look like `/topics/public/default/t`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from magnetar.base.errors import MetadataError

ANY_VERSION: Final = -1
MUST_NOT_EXIST: Final = -2
VALUE_BYTES_MAX: Final = 1 << 20  # ZooKeeper's jute.maxbuffer, so that both stores take the same values


@dataclass(frozen=True, slots=True)
class Versioned:
    """A stored value, and how often its path was overwritten since it was created."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """One write of a `commit`."""

    path: str
    value: bytes
    expected_version: int = ANY_VERSION
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Delete:
    """One removal of a `commit`.  To delete a path that does not exist is an error only with an expected version."""

    path: str
    expected_version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """A condition of a `commit`: `path` has this version, or with `MUST_NOT_EXIST` does not exist, after the operations
    before it.
    """

    path: str
    expected_version: int


CommitStep = Put | Delete | Check


@dataclass(frozen=True, slots=True)
class Change:
    """What a watcher gets: `value` is None if the path was deleted."""

    path: str
    value: Versioned | None


def check_operation(step: CommitStep) -> None:
    """Raise MetadataError for a bad path, an oversized value or a check of any version, which every store refuses."""
    if not step.path.startswith("/") or step.path.endswith("/") or "\0" in step.path:
        raise MetadataError(f"metadata path {step.path[:200]!r} must begin with a slash and not end with one")
    if not step.path.isascii() and any("\ud800" <= char <= "\udfff" for char in step.path):
        raise MetadataError(f"metadata path {step.path[:200]!r} is not valid Unicode")
    if isinstance(step, Put) and len(step.value) > VALUE_BYTES_MAX:
        raise MetadataError(
            f"metadata value of {len(step.value)} bytes at {step.path[:200]} is too large:"
            f" {VALUE_BYTES_MAX} are allowed"
        )
    if isinstance(step, Check) and step.expected_version == ANY_VERSION:
        raise MetadataError(f"a check of metadata path {step.path[:200]} must say which version it expects")


class MetadataStore(Protocol):
    async def get(self, path: str) -> Versioned | None:
        """The value and version at `path`, or None."""
        ...

    async def scan(self, prefix: str) -> list[tuple[str, Versioned]]:
        """Every path that starts with `prefix` (which ends with a slash) and its value, in order of path."""
        ...

    async def put(
        self, path: str, value: bytes, expected_version: int = ANY_VERSION, *, ephemeral: bool = False
    ) -> int:
        """Write a value, and return the path's new version.

        Raises:
            BadVersion: the path's version is not `expected_version`.
            MetadataLost: the write may have been carried out.
            MetadataError: nothing was written: the store cannot write now (disk full, session lost), or the path or the
                value is invalid.
        """
        ...

    async def delete(self, path: str, expected_version: int = ANY_VERSION) -> None:
        """Remove `path`; raises as `put` does."""
        ...

    async def commit(self, operations: Sequence[CommitStep]) -> None:
        """Apply all `operations` in one step, or none of them; raises as `put` does if one of them fails."""
        ...

    def watch(self, prefix: str, callback: Callable[[Change], None]) -> Callable[[], None]:
        """Call `callback` for each later change under `prefix`, until the returned function is called."""
        ...

    async def close(self) -> None: ...
