"""A table of the offset of each key's last record, for as many keys as its memory allows.

The table identifies a key by a hash of 128 bits.  Each table draws a secret for its hashes, so no client can find two
keys with the same hash.  Compiled code works on the table as soon as it is loaded; a place takes 24 bytes, and at most
three quarters of the places are used.  `plain.py` does the same in Python; it needs six times the memory, so it has
room for a sixth of the keys.
"""

from typing import Final, Protocol

from magnetar.base import randomness
from magnetar.wire.compaction.model import Chosen, Rules
from magnetar.wire.compaction.plain import PlainLatest
from magnetar.wire.compiling import CompiledModules
from magnetar.wire.kafka.runtime import Buffer
from magnetar.wire.pulsar.entry import BATCH_MESSAGES_MAX

KEYS_MIN: Final = BATCH_MESSAGES_MAX
"""Every table has room for at least so many keys: those of one batch."""

_PLACE_BYTES: Final = 24
_PLAIN_SHARE: Final = 6
_PATIENCE_BYTES: Final = 8 << 20  # half a minute of Python with rests; more waits for the compiled code

_compiled: Final = CompiledModules(
    __file__,
    ["magnetar.wire.compaction.compiled_records"],
    ["compiled_records.py", "../compiled_bytes.py"],
    "compaction is not compiled and stays slow",
)


class Latest(Protocol):
    """See the module's text.  Records come uncompressed, with their deltas of offsets from `base_offset` on."""

    def has_room(self, count: int) -> bool:
        """Whether the table can note `count` more records, whatever their keys are."""
        ...

    def note(self, records: Buffer, count: int, last_delta: int, base_offset: int) -> None:
        """Note the keys of a batch, which must come in the order of offsets.

        Raises:
            WireError: the records do not add up; none was noted.
        """
        ...

    def choose(self, records: Buffer, count: int, last_delta: int, base_offset: int, rules: Rules) -> Chosen:
        """What stays of a batch: records with a key of which no later one was noted, and which the rules keep.

        Raises:
            WireError: the records do not add up.
        """
        ...


def keys_in(memory_bytes: int) -> int:
    """How many keys a table of that size has room for; `KEYS_MIN` at least, however small it is."""
    places = 1 << (max(memory_bytes // _PLACE_BYTES, 1).bit_length() - 1)
    return max(places * 3 // 4, KEYS_MIN)


def latest_offsets(keys_max: int, bytes_expected: int) -> Latest:
    """A table for `keys_max` keys.  Where much is expected it waits for the compiled code: not for the event loop."""
    _compiled.start()
    if bytes_expected > _PATIENCE_BYTES:
        _compiled.finished.wait()
    if not _compiled.is_loaded:
        return PlainLatest(max(keys_max // _PLAIN_SHARE, KEYS_MIN), randomness.bits(128).to_bytes(16))
    from magnetar.wire.compaction.compiled import CompiledLatest

    return CompiledLatest(_compiled.modules["compiled_records"], keys_max, randomness.bits(126))


def load() -> bool:
    """Load the compiled code and wait for that; whether it is there.  Not for the event loop."""
    return _compiled.load()
