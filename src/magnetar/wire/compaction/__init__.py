"""Which records are the last of their keys, and batches without those that are not.

Records are looked at in the form of Kafka's, uncompressed, whichever client sent them.  A table (`latest.py`) notes the
offset of each key's last record, and then chooses by it what stays of a batch.  Nothing here knows a ledger or waits.
"""

from magnetar.wire.compaction.latest import KEYS_MIN, Latest, keys_in, latest_offsets
from magnetar.wire.compaction.model import Chosen, Rules

__all__ = ["KEYS_MIN", "Chosen", "Latest", "Rules", "keys_in", "latest_offsets"]
