"""What an operator must know about a store that does not work as it should: one sentence, with what to do.

It reads the current state of the store's parts; it waits for nothing, and does not touch the disk.
"""

from pathlib import Path
from typing import Final, Protocol

from magnetar.base.clock import Clock
from magnetar.base.errors import StorageError
from magnetar.storage.local.journal import Journal
from magnetar.storage.local.writebehind import WriteBehind

WRITE_S_MAX: Final = 10.0
"""A synced write that takes longer than this, in seconds, counts as hanging."""

CHECKPOINT_S_MAX: Final = 120.0
"""In seconds.  A checkpoint writes at most what is in the journal, and syncs; slow disks need a few seconds for that.
"""


class Parts(Protocol):
    """The parts of the store that this module reads."""

    clock: Clock
    data_dir: Path
    failure: StorageError | None
    journal: Journal
    behind: WriteBehind


def problem_of(store: Parts) -> str | None:
    """A sentence about the most serious problem; None if there is none."""
    journal, behind = store.journal, store.behind
    now_s = store.clock.monotonic()
    if store.failure is not None:
        return (
            f"{store.failure}; reads go on: see the log, and restart the server, which finds everything that was"
            " acknowledged in its journal"
        )
    if journal.broken is not None:
        return f"{journal.broken}: nothing can be written; see to the disk, and restart the server"
    if (began_s := journal.write_began_s) is not None and now_s - began_s >= WRITE_S_MAX:
        return (
            f"a write to the journal has not returned for {now_s - began_s:.0f} s: the disk of {store.data_dir} hangs,"
            " and all producers wait for it"
        )
    if behind.lost_count:
        return (
            f"the segments of {behind.lost_count} ledgers could not be synced: the journal keeps their entries and"
            " will be full soon; see to the disk, and restart the server, which writes them again"
        )
    if behind.stuck:
        return (
            f"segments cannot be written ({behind.stuck_why}): appends are refused once the journal is full; make"
            f" room on the disk of {store.data_dir}, and writing goes on by itself"
        )
    if (since_s := behind.wanted_since_s) is not None and now_s - since_s >= CHECKPOINT_S_MAX:
        return (
            f"a checkpoint has not ended for {now_s - since_s:.0f} s: the disk of {store.data_dir} is too slow or"
            " hangs; appends wait once the journal is full"
        )
    if (since_s := journal.full_since_s) is not None and now_s - since_s >= WRITE_S_MAX:
        return (
            f"appends have waited for room in the journal for {now_s - since_s:.0f} s: the disk of {store.data_dir}"
            " does not keep up; a larger journal.bytes helps over short peaks"
        )
    return None
