"""The path of a transactional id's record in the metadata store, and how large the record may be."""

from typing import Final

from magnetar.metadata.path_parts import escape
from magnetar.metadata.store import VALUE_BYTES_MAX

ROOT: Final = "/transactions/"
ID_BYTES_MAX: Final = 1024  # of a transactional id: there may be fifty thousand, in memory and on the disk
RECORD_BYTES_MAX: Final = (
    VALUE_BYTES_MAX - 1024
)  # with room for numbers that grow, so that every transaction can be ended


def record_path(transactional_id: str) -> str:
    return ROOT + escape(transactional_id)
