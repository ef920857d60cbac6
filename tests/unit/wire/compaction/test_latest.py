"""The table of last offsets: by compiled code and by Python, against a dictionary."""

import random

import pytest

from magnetar.base.errors import WireError
from magnetar.wire.compaction import KEYS_MIN, Latest, Rules, keys_in, latest
from magnetar.wire.compaction.compiled import CompiledLatest
from magnetar.wire.compaction.plain import PlainLatest
from magnetar.wire.convert import plain


def both(keys_max: int) -> list[Latest]:
    assert latest.load()
    secret = random.Random(7).getrandbits(126)
    return [
        CompiledLatest(latest._compiled.modules["compiled_records"], keys_max, secret),
        PlainLatest(keys_max, b"s" * 16),
    ]


def records(pairs: list[tuple[int, int, bytes | None, bytes | None]]) -> bytes:
    """Of (offset delta, time delta, key, value)."""
    return b"".join(b"".join(plain.record(ms, delta, key, value, [])) for delta, ms, key, value in pairs)


@pytest.mark.parametrize("seed", range(40))
def test_both_keep_the_last_record_of_each_key_and_say_so_alike(seed: int) -> None:
    chance = random.Random(seed)
    batches: list[tuple[int, list[tuple[int, int, bytes | None, bytes | None]]]] = []
    offset = 0
    for _ in range(chance.randint(1, 20)):
        rows = []
        delta = -1
        for _ in range(chance.randint(1, 30)):
            delta += chance.choice([1, 1, 1, 3])
            key = chance.choice([None, b"", *(b"k" * chance.randint(1, 40) for _ in range(6))])
            value = chance.choice([None, b"", b"v" * chance.randint(1, 200)])
            rows.append((delta, chance.randint(-1000, 1000), key, value))
        batches.append((offset, rows))
        offset += delta + chance.randint(1, 4)
    last: dict[bytes, int] = {}
    for base, rows in batches:
        last |= {key: base + delta for delta, _, key, _ in rows if key is not None}
    tables = both(1000)
    for base, rows in batches:
        for table in tables:
            assert table.has_room(len(rows))
            table.note(records(rows), len(rows), rows[-1][0], base)
    for rules in (
        Rules(),
        Rules(drops_tombstones=True),
        Rules(True, empty_is_tombstone=True),
        Rules(False, True),
        Rules(keeps_keyless=True),
        Rules(True, True, keeps_keyless=True),
    ):
        for base, rows in batches:
            kept, tombstones = [], False
            for row in rows:
                delta, _, key, value = row
                is_tombstone = value is None or (value == b"" and rules.empty_is_tombstone)
                if key is None:
                    if rules.keeps_keyless:
                        kept.append(row)
                    continue
                if last[key] != base + delta or (is_tombstone and rules.drops_tombstones):
                    continue
                tombstones = tombstones or is_tombstone
                kept.append(row)
            for table in tables:
                found = table.choose(records(rows), len(rows), rows[-1][0], base, rules)
                assert list(found.deltas) == [row[0] for row in kept]
                assert found.has_tombstones == tombstones
                if len(kept) == len(rows):
                    assert found.records is None
                else:
                    assert found.records is not None
                    assert bytes(found.records) == records(kept)
                if kept:
                    assert found.newest_ms == max(row[1] for row in kept)


def test_keys_that_were_not_noted_stay() -> None:
    for table in both(10):
        found = table.choose(records([(0, 0, b"a", b"1")]), 1, 0, 5, Rules())
        assert found.records is None


def test_of_two_records_of_a_key_in_one_batch_the_second_stays() -> None:
    rows: list[tuple[int, int, bytes | None, bytes | None]] = [(0, 0, b"a", b"1"), (1, 0, b"a", b"2")]
    for table in both(10):
        table.note(records(rows), 2, 1, 0)
        assert list(table.choose(records(rows), 2, 1, 0, Rules()).deltas) == [1]


def test_a_table_has_room_for_as_many_keys_as_it_was_made_for() -> None:
    for table in both(300):
        for number in range(300):
            assert table.has_room(1)
            table.note(records([(0, 0, b"%d" % number, b"")]), 1, 0, number)
        assert not table.has_room(1)
        table_of_one_key = both(1)[0]
        table_of_one_key.note(records([(0, 0, b"a", b"")]), 1, 0, 0)
        assert not table_of_one_key.has_room(1)
        for number in range(300):
            found = table.choose(records([(0, 0, b"%d" % number, b"")]), 1, 0, number - 1, Rules())
            assert list(found.deltas) == []


ROWS: list[tuple[int, int, bytes | None, bytes | None]] = [(0, 0, b"a", b"12345"), (1, 7, b"b", b"67890")]


@pytest.mark.parametrize(
    ("data", "count", "last_delta"),
    [
        pytest.param(records(ROWS)[:-1], 2, 1, id="cut"),
        pytest.param(records(ROWS) + b"\0", 2, 1, id="bytes behind"),
        pytest.param(records(ROWS), 1, 1, id="fewer are claimed"),
        pytest.param(records(ROWS), 3, 2, id="more are claimed"),
        pytest.param(records(ROWS), 2, 0, id="an offset behind the batch"),
        pytest.param(records([ROWS[0], ROWS[0]]), 2, 1, id="an offset twice"),
        pytest.param(records([ROWS[1], ROWS[0]]), 2, 1, id="offsets go down"),
        pytest.param(records([ROWS[0], (-1, 0, b"b", b"")]), 2, 1, id="an offset below the batch"),
        pytest.param(records([ROWS[0]]) + b"\x0a\0\0\2\x7e\0", 2, 1, id="a key longer than its record"),
        pytest.param(records([ROWS[0]]) + b"\x0c\0\0\2\x02k\x7e", 2, 1, id="a value longer than its record"),
        pytest.param(b"\xff" * 11, 1, 0, id="no length"),
        pytest.param(b"", -1, 0, id="less than nothing"),
    ],
)
def test_what_does_not_add_up_notes_nothing(data: bytes, count: int, last_delta: int) -> None:
    for table in both(10):
        with pytest.raises(WireError):
            table.choose(data, count, last_delta, 0, Rules())
        with pytest.raises(WireError):
            table.note(data, count, last_delta, 100)
        found = table.choose(records(ROWS), 2, 1, 0, Rules())
        assert found.records is None, "no key of the broken batch counts"


def test_memory_for_keys_is_used_and_kept_to() -> None:
    assert keys_in(128 << 20) == 3 << 20  # 4 Mi places of 24 bytes, three quarters of them used
    assert keys_in(1) == KEYS_MIN
    table = CompiledLatest(latest._compiled.modules["compiled_records"], keys_in(128 << 20), 0)
    assert table._slots.nbytes <= 128 << 20
