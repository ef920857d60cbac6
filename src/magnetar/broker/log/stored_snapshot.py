"""What the metadata store has of a partition's snapshot, so that only what differs from it is written.

The values are those of `producer_snapshots.py`, by suffix of the path.  A partition knows them from its start, or from
the last snapshot that was stored since.
"""

from collections.abc import Mapping

from magnetar.broker.log import producer_snapshots


class StoredSnapshot:
    """See the module's text."""

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, bytes]) -> None:
        self._values = dict(values)

    def note(self, snapshot: Mapping[str, bytes]) -> None:
        """Note that all of the snapshot is stored now, and nothing else."""
        self._values = dict(snapshot)

    def unstored(self, snapshot: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
        """The parts of the snapshot to write, and the suffixes to delete."""
        known = self._values
        puts = {suffix: value for suffix, value in snapshot.items() if known.get(suffix) != value}
        return puts, [suffix for suffix in known if suffix not in snapshot]

    @property
    def covered(self) -> int:
        """The offset below which the snapshot covers the log; 0 if there is none that can be read."""
        return producer_snapshots.covered(self._values)
