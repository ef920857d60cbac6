"""Where the record of a transactional id lies in the metadata, and how large it may be."""

from typing import Final

from magnetar.ledger.cursor_store import escape
from magnetar.metadata.store import VALUE_BYTES_MAX

ROOT: Final = "/transactions/"
RECORD_BYTES_MAX: Final = (
    VALUE_BYTES_MAX - 1024
)  # what was taken can always be ended: numbers may grow a little


def record_path(transactional_id: str) -> str:
    return ROOT + escape(transactional_id)
