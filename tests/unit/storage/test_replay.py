"""What a start makes of journal files: whole rounds in their order, torn tails, and damage, told from each other."""

import random
from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.base.errors import StorageError
from magnetar.storage.blocks import BLOCK_BYTES, align_up
from magnetar.storage.local.catalogue import Known
from magnetar.storage.local.format import (
    ROUND,
    ROUND_BYTES,
    ROUND_MAGIC,
    UNSYNCED,
    Control,
    control_record,
    round_header,
)
from magnetar.storage.local.replay import SURE_BITS, Damage, Survey, Torn, Whole, survey, walk
from magnetar.testing.disk import CrashDisk, CrashFile
from magnetar.wire.stored import RECORD_BYTES, RECORD_REST, RECORD_START

from .seen_disk import SeenDisk

FOLDER = Path("/journal")
SALT = 9
FILE_BLOCKS = 8


def round_(epoch: int, sequence: int, salt: int = SALT, flags: int = 0) -> bytes:
    """One block: a round with one record."""
    record = control_record(sequence, Control.CREATE)
    head = round_header(epoch, sequence, len(record), 1, crc32c(record[4:8]), salt, flags)
    return (bytes(head) + record).ljust(BLOCK_BYTES, b"\0")


def full_round(epoch: int, sequence: int) -> bytes:
    """One block, too, and the record ends with it."""
    size = BLOCK_BYTES - ROUND_BYTES - RECORD_BYTES
    rest = RECORD_REST.pack(1, 0, 0, 0) + bytes(size)
    record = RECORD_START.pack(size, crc32c(rest)) + rest
    return bytes(round_header(epoch, sequence, len(record), 1, crc32c(record[4:8]), SALT, 0)) + record


def round_of_version_1(epoch: int, sequence: int) -> bytes:
    record = control_record(sequence, Control.CREATE)
    head = ROUND.pack(ROUND_MAGIC, 1, 0, epoch, sequence, len(record), 1, crc32c(record[4:8]), 0, 0)[:-4]
    return (head + crc32c(head).to_bytes(4, "big") + record).ljust(BLOCK_BYTES, b"\0")


def bad_body(block: bytes) -> bytes:
    return block[:100] + b"?" + block[101:]


def bad_head(block: bytes) -> bytes:
    return block[:20] + b"?" + block[21:]


ZERO = bytes(BLOCK_BYTES)
JUNK = b"MGJR, or so it says".ljust(BLOCK_BYTES, b"?")


def files(blocks: int = FILE_BLOCKS, **content: bytes) -> SeenDisk:
    """A folder of journal files, each filled up with zeroes to so many blocks."""
    disk = SeenDisk()
    for name, data in content.items():
        file = disk.open(FOLDER / f"{name}.journal", create=True)
        file.write(data.ljust(blocks * BLOCK_BYTES, b"\0"), 0)
        file.close()
    return disk


def known_at(sequence: int = 0, *, epoch: int = 0, salt: int = SALT) -> Known:
    known = Known()
    known.journal_sequence, known.journal_epoch, known.journal_salt = sequence, epoch, salt
    return known


def walked(disk: CrashDisk, known: Known | None = None) -> list[object]:
    """The rounds that are whole by number, those of which nothing is needed below 0; and what is not whole."""
    known = known or known_at()
    return [
        (item.head.sequence if item.records else -item.head.sequence) if isinstance(item, Whole) else item
        for item in walk(survey(disk, FOLDER, known), known)
    ]


def damage(file: str, block: int, first: int, end: int, *, is_synced: bool = True) -> Damage:
    return Damage(f"{file}.journal" if file else "", block * BLOCK_BYTES, first, end, is_synced)


def last_sequences(found: Survey) -> dict[str, int]:
    return {use.file.path.stem: use.file.last_sequence for use in found.uses}


def test_files_are_read_in_the_order_of_their_epochs() -> None:
    disk = files(b=round_(1, 1) + round_(1, 2) + round_(1, 3), a=round_(2, 4) + round_(2, 5), c=ZERO)
    assert walked(disk) == [1, 2, 3, 4, 5]
    known = known_at()
    found = survey(disk, FOLDER, known)
    list(walk(found, known))
    assert last_sequences(found) == {"b": 3, "a": 5}
    assert [file.path.stem for file in found.free] == ["c"]
    assert [(file.path.stem, file.epoch) for file in found.files()] == [("b", 1), ("a", 2), ("c", 0)]
    assert found.newest_epoch == 2


@pytest.mark.parametrize(
    ("checkpoint", "expected", "last"),
    [
        (1, [-1, 2, 3, 4, 5], {"a": 3, "b": 5}),
        (2, [-1, -2, 3, 4, 5], {"a": 3, "b": 5}),
        (3, [4, 5], {"a": 3, "b": 5}),
        (4, [-4, 5], {"a": 3, "b": 5}),
    ],
)
def test_a_file_is_read_when_it_has_rounds_behind_the_checkpoint(
    checkpoint: int, expected: list[int], last: dict[str, int]
) -> None:
    disk = files(a=round_(1, 1) + round_(1, 2) + round_(1, 3), b=round_(2, 4) + round_(2, 5))
    known = known_at(checkpoint)
    assert walked(disk, known) == expected
    found = survey(disk, FOLDER, known)
    list(walk(found, known))
    assert last_sequences(found) == last


def test_a_round_that_was_written_anew_in_a_later_file_counts_there() -> None:
    again = files(a=round_(1, 1) + round_(1, 2) + round_(1, 3), b=round_(2, 3) + round_(2, 4))
    assert walked(again) == [1, 2, 3, 4]
    whole = files(a=round_(1, 3), b=round_(2, 3) + round_(2, 4))
    found = survey(whole, FOLDER, known_at(2))
    assert [file.path.stem for file in found.free] == ["a"]
    assert walked(whole, known_at(2)) == [3, 4]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_tail_that_is_not_whole_is_torn_when_it_was_begun() -> None:
    assert walked(files(a=round_(1, 1) + bad_body(round_(1, 2)))) == [1, Torn("a.journal", BLOCK_BYTES, 2)]
    assert walked(files(a=round_(1, 1) + bad_head(round_(1, 2)))) == [1]
    assert walked(files(a=round_(2, 7) + round_(1, 2) + round_(1, 3)), known_at(6)) == [7], "of an older use"


def test_the_file_in_use_at_the_checkpoint_must_be_there() -> None:
    assert walked(files(a=round_(1, 1)), known_at(1, epoch=1)) == [-1]
    assert walked(files(a=round_(1, 1)), known_at(1, epoch=2)) == [-1, damage("", 0, 2, 2)]
    assert walked(files(a=ZERO), known_at(epoch=1)) == [damage("", 0, 1, 1)]
    assert walked(files(), known_at(4, epoch=1)) == [damage("", 0, 5, 5)]


# --- damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spoil", [bad_body, bad_head, lambda block: ZERO, lambda block: JUNK])
def test_a_round_is_damaged_when_a_later_one_of_the_same_use_is_there(spoil) -> None:  # type: ignore[no-untyped-def]
    for number in (2, 3):
        rounds = [round_(1, each) for each in range(1, 6)]
        rounds[number - 1] = spoil(rounds[number - 1])
        expected: list[object] = [1, 2, 3, 4, 5]
        expected[number - 1] = damage("a", number - 1, number, number + 1)
        assert walked(files(a=b"".join(rounds))) == expected
    rounds = [round_(1, 1), spoil(round_(1, 2)), JUNK, round_(1, 4), round_(1, 5)]
    assert walked(files(a=b"".join(rounds))) == [1, damage("a", 1, 2, 4), 4, 5]


def test_the_first_round_of_a_file_is_damaged_when_a_later_one_is_there() -> None:
    a = round_(1, 1) + round_(1, 2)
    assert walked(files(a=bad_body(round_(1, 1)) + round_(1, 2))) == [damage("a", 0, 1, 2), 2]
    for beginning in (bad_head(round_(2, 3)), JUNK):
        found = walked(files(a=a, b=beginning + round_(2, 4) + round_(2, 5)))
        assert found == [1, 2, damage("b", 0, 3, 4), 4, 5]
    assert walked(files(a=a, b=bad_head(round_(2, 3)))) == [1, 2], "or only its first write was begun"


def test_what_carries_another_salt_or_an_older_epoch_proves_nothing() -> None:
    a = round_(1, 1) + round_(1, 2)
    assert walked(files(a=a, b=JUNK + round_(2, 4, salt=SALT + 1))) == [1, 2]
    assert walked(files(a=a + JUNK + round_(1, 4, salt=SALT + 1))) == [1, 2]
    both = JUNK + round_(4, 4) + round_(4, 5) + round_(1, 1) + round_(1, 2)
    found = survey(files(a=round_(3, 2), b=both), FOLDER, known_at(1))
    assert [(use.head.epoch, use.position, use.first_sequence) for use in found.uses] == [
        (3, 0, 2),
        (4, BLOCK_BYTES, 3),
    ]
    assert found.newest_epoch == 4


def test_rounds_of_version_1_have_no_salt_and_prove_damage_as_well() -> None:
    disk = files(a=round_of_version_1(1, 1), b=JUNK + round_of_version_1(2, 3))
    assert walked(disk) == [1, damage("b", 0, 2, 3), 3]
    disk = files(a=JUNK + round_of_version_1(1, 2))
    assert walked(disk, known_at(salt=0)) == [damage("a", 0, 1, 2), 2]
    assert walked(disk) == []


def test_a_tail_that_a_later_file_goes_on_behind_is_damage() -> None:
    disk = files(a=round_(1, 1) + bad_body(round_(1, 2)), b=round_(2, 4))
    assert walked(disk) == [1, damage("a", 1, 2, 4), 4]
    disk = files(a=round_(1, 1) + bad_head(round_(1, 2)), b=round_(2, 3))
    assert walked(disk) == [1, damage("a", 1, 2, 3), 3]


def test_a_file_that_is_missing_between_two_others_is_damage() -> None:
    disk = files(1, a=round_(1, 1), c=round_(3, 4))
    assert walked(disk) == [1, damage("", 0, 2, 4), 4]
    assert walked(disk, known_at(2)) == [-1, damage("", 0, 3, 4), 4]
    assert walked(disk, known_at(3)) == [4]
    unsynced = files(1, a=round_(1, 1, flags=UNSYNCED), c=round_(3, 4, flags=UNSYNCED))
    assert walked(unsynced) == [1, damage("", 0, 2, 4, is_synced=False), 4]


def test_behind_damage_the_rounds_go_on_being_counted() -> None:
    disk = files(3, a=round_(1, 1) + bad_body(round_(1, 2)) + round_(1, 3), c=round_(3, 6))
    assert walked(disk) == [1, damage("a", 1, 2, 3), 3, damage("", 0, 4, 6), 6]
    disk = files(a=round_(1, 1) + bad_body(round_(1, 2)), b=(round_(2, 3) + round_(2, 4)) * 1)
    assert walked(disk) == [1, damage("a", 1, 2, 3), 3, 4]
    disk = files(2, a=round_(1, 1) + bad_body(round_(1, 2)), b=round_(2, 3) + round_(2, 4), d=round_(4, 7))
    assert walked(disk) == [1, damage("a", 1, 2, 3), 3, 4, damage("", 0, 5, 7), 7]
    tail = round_(1, 1) + bad_body(round_(1, 2)) + bad_body(round_(1, 3))
    torn = Torn("a.journal", 2 * BLOCK_BYTES, 3)
    assert walked(files(a=tail), known_at(epoch=2)) == [
        1,
        damage("a", 1, 2, 3),
        torn,
        damage("", 0, 3, 3),
    ]
    assert walked(files(a=tail, b=round_(2, 4)), known_at()) == [
        1,
        damage("a", 1, 2, 3),
        damage("a", 2, 3, 4),
        4,
    ]


def test_damage_to_what_the_checkpoint_covers_is_none() -> None:
    disk = files(a=round_(1, 1) + bad_body(round_(1, 2)) + round_(1, 3) + round_(1, 4))
    assert walked(disk, known_at(2)) == [-1, -2, 3, 4]
    assert walked(disk, known_at(3)) == [-1, -2, -3, 4]
    assert walked(disk, known_at(1)) == [-1, damage("a", 1, 2, 3), 3, 4]
    disk = files(a=round_(1, 1) + bad_head(round_(1, 2)) + round_(1, 3) + round_(1, 4))
    assert walked(disk, known_at(3)) == [-1, -3, 4]
    assert walked(disk, known_at(2)) == [-1, 3, 4]
    assert walked(disk, known_at(1)) == [-1, damage("a", 1, 2, 3), 3, 4]


def test_a_file_that_begins_damaged_behind_a_damaged_tail_is_named_as_well() -> None:
    disk = files(a=round_(1, 1) + bad_body(round_(1, 2)), b=bad_head(round_(2, 3)) + round_(2, 4))
    assert walked(disk) == [1, damage("a", 1, 2, 3), damage("b", 0, 3, 4), 4]


def test_a_round_may_end_where_its_file_ends() -> None:
    disk = files(2, a=round_(1, 1) + full_round(1, 2), b=round_(2, 3))
    assert walked(disk) == [1, 2, 3]


# --- one wrong bit ----------------------------------------------------------------------------------------------------


def one_bit(block: bytes, place: int = 90) -> bytes:
    return block[:place] + bytes([block[place] ^ 8]) + block[place + 1 :]


def mended(disk: SeenDisk, known: Known | None = None) -> list[object]:
    """As `walked`, with the sequence and the records' ledgers of what was mended."""
    known = known or known_at()
    told: list[object] = []
    for item in walk(survey(disk, FOLDER, known), known):
        if isinstance(item, Damage) and item.mended is not None:
            told.append((item._replace(mended=None), [one.ledger_id for one in item.mended.records]))
        else:
            told.append(
                (item.head.sequence if item.records else -item.head.sequence)
                if isinstance(item, Whole)
                else item
            )
    return told


@pytest.mark.parametrize("place", [0, 5, 20, 40, 63, 64, 70, 80, 103])
def test_the_very_last_round_with_one_wrong_bit_is_damaged_and_not_torn(place: int) -> None:
    last = files(a=round_(1, 1) + one_bit(round_(1, 2), place))
    assert mended(last) == [1, (damage("a", 1, 2, 3), [2])]
    first = files(a=round_(1, 1), b=one_bit(round_(2, 2), place))
    assert mended(first) == [1, (damage("b", 0, 2, 3), [2])]
    only = files(a=one_bit(round_(1, 1), place))
    assert mended(only) == [(damage("a", 0, 1, 2), [1])]


@pytest.mark.parametrize("place", [72, 79])
def test_a_bit_that_says_whose_a_record_is_counts_only_with_something_behind_it(place: int) -> None:
    """A client can choose a body that looks like that if its write is cut short."""
    bad = one_bit(round_(1, 2), place)
    unclear = damage("a", 1, 2, 3)._replace(is_unclear=True)
    assert mended(files(a=round_(1, 1) + bad)) == [1, unclear]
    assert mended(files(a=round_(1, 1) + bad + round_(1, 3))) == [1, (damage("a", 1, 2, 3), [2]), 3]
    assert mended(files(a=round_(1, 1) + bad, b=round_(2, 3))) == [1, (damage("a", 1, 2, 3), [2]), 3]
    a, b, c = (round_(1, sequence, flags=UNSYNCED) for sequence in (1, 2, 3))
    unsynced = unclear._replace(is_synced=False)
    assert mended(files(a=a + one_bit(b, place) + c)) == [1, unsynced, 3], (
        "this may be torn, and the next one not"
    )


def test_a_round_with_one_wrong_bit_is_mended_wherever_it_is() -> None:
    disk = files(2, a=round_(1, 1) + one_bit(round_(1, 2)), b=one_bit(round_(2, 3), 20) + round_(2, 4))
    assert mended(disk) == [1, (damage("a", 1, 2, 3), [2]), (damage("b", 0, 3, 4), [3]), 4]
    disk = files(a=round_(1, 1) + one_bit(round_(1, 2)) + bad_body(round_(1, 3)) + round_(1, 4))
    assert mended(disk) == [1, (damage("a", 1, 2, 3), [2]), damage("a", 2, 3, 4), 4]


def test_a_round_that_ends_with_its_file_is_mended() -> None:
    disk = files(2, a=round_(1, 1) + one_bit(full_round(1, 2)), b=round_(2, 3))
    assert mended(disk) == [1, (damage("a", 1, 2, 3), [1]), 3]


def test_what_one_wrong_bit_shows_no_loss_of_power_has_left() -> None:
    disk = files(a=round_(1, 1, flags=UNSYNCED) + one_bit(round_(1, 2, flags=UNSYNCED)))
    *_, found = walk(survey(disk, FOLDER, known_at()), known_at())
    assert isinstance(found, Damage)
    assert (found.is_synced, found.is_proven) == (False, True)
    assert not found._replace(mended=None).is_proven
    assert found._replace(mended=None, is_synced=True).is_proven


def test_one_wrong_bit_in_what_is_not_needed_is_harmless() -> None:
    assert mended(files(a=one_bit(round_(1, 1), 20) + round_(1, 2)), known_at(1)) == [-1, 2]
    assert mended(files(a=one_bit(round_(1, 1), 20)), known_at(1)) == []
    older = files(a=round_(2, 7) + one_bit(round_(1, 2)) + one_bit(round_(1, 3), 20))
    assert mended(older, known_at(6)) == [7]
    forged = round_(1, 1) + one_bit(round_(1, 3, salt=3), 20)
    assert mended(files(a=forged)) == [1], "a client's"


def test_the_first_header_of_a_file_with_one_wrong_bit_counts_whatever_its_salt() -> None:
    """No client's bytes are where it is.  Of version 1 it may be the only file, behind a catalogue with a salt."""
    for place in (0, 5, 20, 40, 63):
        old = one_bit(round_of_version_1(1, 1), place)
        assert mended(files(a=old + round_of_version_1(1, 2))) == [(damage("a", 0, 1, 2), [1]), 2]
        assert mended(files(a=old)) == [(damage("a", 0, 1, 2), [1])]
        both = files(a=old, b=bad_head(round_of_version_1(2, 2)) + round_of_version_1(2, 3))
        assert mended(both) == [(damage("a", 0, 1, 2), [1]), damage("b", 0, 2, 3), 3]
    assert mended(files(a=one_bit(round_(1, 1, salt=3), 20))) == [(damage("a", 0, 1, 2), [1])]


@pytest.mark.parametrize("place", [0, 5, 20, 40, 63])
def test_a_later_header_with_one_wrong_bit_proves_as_much_as_a_whole_one(place: int) -> None:
    last = one_bit(round_(1, 3), place)
    disk = files(a=round_(1, 1) + bad_body(round_(1, 2)) + last)
    assert mended(disk) == [1, damage("a", 1, 2, 3), (damage("a", 2, 3, 4), [3])]
    disk = files(a=bad_head(round_(1, 1)) + ZERO + one_bit(round_(1, 3), place))
    assert mended(disk) == [damage("a", 0, 1, 3), (damage("a", 2, 3, 4), [3])]


def test_a_round_without_records_has_nothing_to_lose() -> None:
    """It only says that the one before it was whole."""
    mark = bytes(round_header(1, 2, 0, 0, crc32c(b""), SALT, 0)).ljust(BLOCK_BYTES, b"\0")
    assert mended(files(a=round_(1, 1) + mark)) == [1, -2]
    assert mended(files(a=round_(1, 1) + one_bit(mark, 20))) == [1]


def large_round(sequence: int, body: bytes) -> bytes:
    rest = RECORD_REST.pack(sequence, 0, 0, 0) + body
    record = RECORD_START.pack(len(body), crc32c(rest)) + rest
    whole = bytes(round_header(1, sequence, len(record), 1, crc32c(record[4:8]), SALT, 0)) + record
    return whole.ljust(align_up(len(whole)), b"\0")


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("spare", [0, 8])
def test_of_a_long_record_one_wrong_bit_counts_only_with_something_behind_it(
    spare: int, follows: bool
) -> None:
    assert SURE_BITS / 2**32 <= 1 / 4096
    size = (SURE_BITS - spare + 8) // 8 - (RECORD_BYTES - 8) - 4  # with its checksum, just too long, or not
    disk = files(
        40, a=round_(1, 1) + one_bit(large_round(2, bytes(size)), 5000) + (round_(1, 3) if follows else b"")
    )
    named = [1, (damage("a", 1, 2, 3), [2])]
    expected = [*named, 3] if follows else named if spare else [1, Torn("a.journal", BLOCK_BYTES, 2)]
    assert mended(disk) == expected


def test_any_tear_by_sectors_is_torn() -> None:
    """Each subset of a round's sectors over zeroes, and over an older use of the file."""
    chance = random.Random(11)
    new = large_round(2, chance.randbytes(3000))
    for old in (ZERO, large_round(9, chance.randbytes(3000))):
        for kept in range(1, 255):
            sectors = [
                (new if kept >> number & 1 else old)[number * 512 : (number + 1) * 512]
                for number in range(len(new) // 512)
            ]
            last = mended(files(a=round_(1, 1) + b"".join(sectors)))[1:]
            is_whole = kept & 0x7F == 0x7F  # the last sector has only zeroes
            assert is_whole or last in ([], [Torn("a.journal", BLOCK_BYTES, 2)]), kept


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_that_something_has_cut_are_named_and_read_as_far_as_they_go() -> None:
    disk = files(1, whole=round_(1, 1))
    for name, data in (("cut", round_(2, 2) + round_(2, 3)[:100]), ("short", b"x" * 100), ("nothing", b"")):
        disk.open(FOLDER / f"{name}.journal", create=True).write(data, 0)
    disk.open(FOLDER / "other.txt", create=True).write(b"x", 0)
    disk.opened.clear()
    found = survey(disk, FOLDER, known_at())
    assert found.cut == [("cut.journal", BLOCK_BYTES + 100), ("nothing.journal", 0), ("short.journal", 100)]
    assert {use.file.path.stem: use.file.size for use in found.uses} == {
        "whole": BLOCK_BYTES,
        "cut": BLOCK_BYTES,
    }
    assert found.free == []
    assert disk.still_open == ["cut.journal", "whole.journal"]
    assert walked(disk) == [1, 2]


def test_files_are_read_in_whole_blocks_where_the_page_cache_is_passed_by() -> None:
    """The disk in memory checks it, as a real one would."""
    disk = files(a=round_(1, 1) + round_(1, 2), b=JUNK + round_(2, 3) + round_(2, 4), c=ZERO)
    known = known_at()
    found = survey(disk, FOLDER, known, direct=True, sync_writes=True)
    assert len([item for item in walk(found, known) if isinstance(item, Whole)]) == 3
    assert set(disk.flags.values()) == {(True, True)}


@pytest.mark.parametrize("reads", [1, 2])
def test_a_file_that_gets_shorter_meanwhile_is_an_error(monkeypatch: pytest.MonkeyPatch, reads: int) -> None:
    read = CrashFile.read
    missing = [0] * (reads - 1) + [1]

    def shorter(file: CrashFile, buffer: memoryview, position: int) -> int:
        return read(file, buffer, position) - (missing.pop(0) if missing else 0)

    disk = files(a=round_(1, 1))
    monkeypatch.setattr(CrashFile, "read", shorter)
    with pytest.raises(StorageError, match="shorter than it was"):
        walked(disk)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (damage("", 0, 5, 5), "the file in use when round 4 was written is gone"),
        (damage("", 0, 5, 6), "round 5 are missing, with the file that they were in"),
        (damage("", 0, 5, 8), "rounds 5 to 7 are missing, with the file that they were in"),
        (damage("a", 2, 5, 6), "a.journal at byte 8192, round 5"),
        (damage("a", 2, 5, 7), "a.journal at byte 8192, rounds 5 to 6"),
        (
            damage("a", 2, 5, 6)._replace(is_unclear=True),
            "a.journal at byte 8192, round 5, has one wrong bit, or was cut short",
        ),
    ],
)
def test_damage_is_named(found: Damage, said: str) -> None:
    assert found.sentence() == said
