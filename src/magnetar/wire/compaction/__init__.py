"""Finds the last record of each key, and makes batches without the older records.

The caller gives all records in Kafka's form and uncompressed, whichever client sent them.  A table (`latest.py`) notes
the offset of each key's last record; with it, the table chooses which records of a batch stay.  This package knows no
ledger and never waits.
"""

from magnetar.wire.compaction.latest import KEYS_MIN, Latest, keys_in, latest_offsets
from magnetar.wire.compaction.model import Chosen, Rules

__all__ = ["KEYS_MIN", "Chosen", "Latest", "Rules", "keys_in", "latest_offsets"]
