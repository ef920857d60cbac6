"""The work of `magnetar doctor`: it checks the stored data of a stopped server, and repairs them on request.

A check gets the folder and yields findings; it changes nothing.  Repairs run only if there is damage.  A repair moves
each file that it replaces into `damaged-<time>` in the data directory, and deletes nothing.  A package that stores
data of its own adds a check to `CHECKS`, and a repair, if it has one, to `REPAIRS`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from magnetar.base.errors import ConfigError, StorageError
from magnetar.base.findings import Finding, Weight
from magnetar.base.lockfile import DirectoryLock
from magnetar.server import doctor_metadata
from magnetar.storage.local import doctor as storage
from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.salvage import Examined, examine

_PARTS: Final = ("journal", "segments")


@dataclass(slots=True)
class Folder:
    """A data directory, and what all checks need of it."""

    data_dir: Path
    store: Examined
    """The ledger store; `store.ledgers` are the ledgers that would exist after a start, or after a repair."""
    deep: bool
    damaged: Path
    """The folder into which repairs move files."""


@dataclass(slots=True)
class Report:
    findings: list[Finding] = field(default_factory=list)
    repairs: list[Finding] = field(default_factory=list)
    after: list[Finding] = field(default_factory=list)
    """The findings after a repair."""

    @property
    def is_healthy(self) -> bool:
        last = self.after if self.repairs else self.findings
        return not any(finding.weight is Weight.DAMAGE for finding in last)


def _check_storage(folder: Folder) -> Iterator[Finding]:
    return storage.check(folder.store, deep=folder.deep)


def _repair_storage(folder: Folder) -> Iterator[Finding]:
    return storage.repair(folder.store, folder.damaged)


def _check_metadata(folder: Folder) -> Iterator[Finding]:
    return doctor_metadata.check(folder.store)


def _repair_binding(folder: Folder) -> Iterator[Finding]:
    """Runs after the store's repair, because that may leave fewer rounds than the metadata has noted."""
    mended = examine(folder.store.disk, folder.data_dir)
    try:
        yield from doctor_metadata.repair(mended, folder.damaged)
    finally:
        mended.close()


CHECKS: Final[tuple[Callable[[Folder], Iterator[Finding]], ...]] = (_check_storage, _check_metadata)
REPAIRS: Final[tuple[Callable[[Folder], Iterator[Finding]], ...]] = (_repair_storage, _repair_binding)


def run(data_dir: Path, *, deep: bool, repair: bool) -> Report:
    """Check the data, and repair them if `repair`.

    Raises:
        ConfigError: `data_dir` is no data directory, or a server is using it.
        StorageError: a file of the repair cannot be written, for example on a full disk.  Nothing is lost by that.
        OSError: a file cannot be read.
    """
    if not all((data_dir / name).is_dir() for name in _PARTS):
        raise ConfigError(f"{data_dir} is no data dir of a Magnetar server: it has no journal or no segments")
    lock = DirectoryLock(data_dir / "lock")
    try:
        report = Report()
        folder = _open(data_dir, deep=deep)
        try:
            report.findings = [finding for check in CHECKS for finding in check(folder)]
            if not repair or report.is_healthy:
                return report
            report.repairs = _repaired(folder)
        finally:
            folder.store.close()
        if report.repairs:
            folder = _open(data_dir, deep=deep)
            try:
                report.after = [finding for check in CHECKS for finding in check(folder)]
            finally:
                folder.store.close()
        return report
    finally:
        lock.release()


def _repaired(folder: Folder) -> list[Finding]:
    try:
        folder.damaged.mkdir(mode=0o750)
        return [finding for mend in REPAIRS for finding in mend(folder)]
    except OSError as error:
        mib = -(-storage.repair_bytes(folder.store) >> 20)
        raise StorageError(
            f"the repair has stopped: {error.strerror}. It loses nothing by that, and can be run again; it writes"
            f" about {mib} MiB into {folder.data_dir}"
        ) from error
    finally:
        if folder.damaged.exists() and not any(folder.damaged.iterdir()):
            folder.damaged.rmdir()


def _open(data_dir: Path, *, deep: bool) -> Folder:
    stamp = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    damaged = data_dir / f"damaged-{stamp}"
    number = 1
    while damaged.exists():
        number += 1
        damaged = data_dir / f"damaged-{stamp}-{number}"
    return Folder(data_dir, examine(RealDisk(), data_dir), deep, damaged)
