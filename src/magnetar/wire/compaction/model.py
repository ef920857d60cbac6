"""The rules by which records stay, and the rest of a batch that stays."""

from collections.abc import Sequence
from typing import NamedTuple

from magnetar.wire.kafka.runtime import Buffer


class Rules(NamedTuple):
    """What besides older records goes.

    drops_tombstones    tombstones, too
    empty_is_tombstone  a record with an empty value is one, as for Pulsar; else only one without a value is
    keeps_keyless       records without a key do not go, whatever their value
    """

    drops_tombstones: bool = False
    empty_is_tombstone: bool = False
    keeps_keyless: bool = False


class Chosen(NamedTuple):
    """What stays of the records of one batch.

    records         side by side, as they were; None when all of them stay
    deltas          of their offsets
    newest_ms       the greatest of their timestamp deltas; 0 when none stays
    has_tombstones  whether any of those that stay is one
    """

    records: Buffer | None
    deltas: Sequence[int]
    newest_ms: int
    has_tombstones: bool
