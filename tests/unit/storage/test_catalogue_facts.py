"""What a catalogue says, fact by fact: what is kept of each, how many bytes that is, and what is no fact."""

import random
from itertools import pairwise
from pathlib import Path

import pytest
from crc32c import crc32c

from magnetar.storage.local.catalogue import (
    Catalogue,
    CatalogueView,
    Fact,
    Known,
    parse_fact,
    points_count,
    read_catalogue,
    whole_catalogue,
)
from magnetar.storage.local.format import (
    CATALOGUE_HEAD,
    CATALOGUE_MAGIC,
    CATALOGUE_MAGIC_1,
    FACT,
    FACT_BYTES,
    FACT_START,
    FactKind,
    catalogue_head,
    fact,
)
from magnetar.storage.segment_format import POINT_BYTES
from magnetar.testing.disk import CrashDisk

SEED = 41
PATH = Path("/data/catalogue")


def some_facts(rng: random.Random, count: int) -> list[Fact]:
    found = []
    for number in range(count):
        kind = rng.choice([FactKind.PROGRESS, FactKind.PROGRESS, FactKind.SEALED, FactKind.DELETED])
        points = bytes([number]) * (POINT_BYTES * rng.randrange(4)) if kind is FactKind.PROGRESS else b""
        found.append(Fact(kind, rng.randrange(1, 6), number, number * 100, number * 10, 7, points))
        if rng.random() < 0.2:
            found.append(Fact(FactKind.CHECKPOINT, number + 9, number, 20, number, 77, b""))
    return found


def state(known: Known) -> dict[str, object]:
    found: dict[str, object] = {name: getattr(known, name) for name in Known.__slots__}
    found["facts"] = {each: (line, b"".join(points)) for each, (line, points) in known.facts.items()}
    found["deleted"] = set(known.deleted)
    return found


def test_what_would_be_known_after_some_facts_is_what_is_known_after_them() -> None:
    rng = random.Random(SEED)
    for _ in range(50):
        known = Known()
        for line in some_facts(rng, 30):
            known.apply(line)
        before = state(known)
        more = some_facts(rng, 5)
        after = known.after(more)
        assert state(known) == before, SEED
        for line in more:
            known.apply(line)
        assert state(after) == state(known)


def test_the_bytes_of_what_counts_are_those_of_a_file_that_has_nothing_else() -> None:
    rng = random.Random(SEED)
    assert Known().live_bytes == 0
    for _ in range(50):
        known = Known()
        for line in some_facts(rng, 40):
            known.apply(line)
            data = whole_catalogue(known)
            assert len(data) == CATALOGUE_HEAD.size + known.live_bytes + FACT_BYTES, SEED
        known.forget([*known.deleted][:1])
        assert len(whole_catalogue(known)) == CATALOGUE_HEAD.size + known.live_bytes + FACT_BYTES
        view = read_catalogue(memoryview(whole_catalogue(known)))
        assert view is not None
        assert (view.version, view.is_damaged) == (2, False)
        assert state(view.known) == state(known)


def view_of(data: bytes) -> CatalogueView | None:
    return read_catalogue(memoryview(bytearray(data)))


def test_what_does_not_begin_as_a_catalogue_is_none() -> None:
    head = catalogue_head(CATALOGUE_HEAD.size)
    found = view_of(head)
    assert found is not None
    assert (found.version, found.position, found.is_damaged) == (2, CATALOGUE_HEAD.size, False)
    foreign = b"SOMETHNG" + head[8:-4]
    for data in (
        b"",
        CATALOGUE_MAGIC,
        head[:-1],
        foreign + crc32c(foreign).to_bytes(4, "big"),
        head[:-1] + b"?",
    ):
        assert view_of(data) is None


def test_a_first_part_that_is_not_all_there_is_damage() -> None:
    line = fact(FactKind.PROGRESS, 1, 5, 500, 50, 7)
    whole = catalogue_head(CATALOGUE_HEAD.size + 2 * len(line)) + line + line
    for size, damaged in ((len(whole), False), (len(whole) - 1, True), (len(whole) - len(line), True)):
        found = view_of(whole[:size])
        assert found is not None
        assert found.is_damaged == damaged
    found = view_of(whole[:-1] + b"?")
    assert found is not None
    assert found.is_damaged


def test_version_1_without_a_commit_becomes_version_2() -> None:
    disk = CrashDisk()
    disk.open(PATH, create=True).write(CATALOGUE_MAGIC_1, 0)
    catalogue = Catalogue(disk, PATH)
    catalogue.load()
    assert bytes(disk.content(PATH)[:8]) == CATALOGUE_MAGIC
    assert catalogue.known.journal_salt > 0


def line_of(kind: int, rest: bytes = b"") -> memoryview:
    """A line that is well summed, whatever it says."""
    body = FACT.pack(kind, 1, 2, 3, 4, 5) + rest
    return memoryview(bytearray(FACT_START.pack(len(body), crc32c(body)) + body))


@pytest.mark.parametrize(
    ("data", "is_one"),
    [
        (line_of(FactKind.SEALED), True),
        (line_of(FactKind.PROGRESS, bytes(POINT_BYTES)), True),
        (line_of(9), False),
        (line_of(FactKind.PROGRESS, bytes(POINT_BYTES - 1)), False),
        (line_of(9, bytes(POINT_BYTES - 1)), False),
        (line_of(FactKind.PROGRESS, bytes(POINT_BYTES))[:-1], False),
        (line_of(FactKind.SEALED)[:-1], False),
        (memoryview(b""), False),
    ],
)
def test_a_line_is_a_fact_only_when_all_of_it_can_be_one(data: memoryview, is_one: bool) -> None:
    found = parse_fact(data, 0)
    assert (found is not None) == is_one
    if found is not None:
        assert (found.ledger_id, found.entry_count, found.data_bytes) == (1, 2, 3)
        assert len(found.points) == len(data) - FACT_BYTES
        assert parse_fact(data, 1) is None


def test_points_are_counted() -> None:
    assert points_count([]) == 0
    assert points_count([bytes(POINT_BYTES), bytes(3 * POINT_BYTES)]) == 4


def test_a_catalogue_of_which_most_is_outdated_is_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("magnetar.storage.local.catalogue.REWRITE_SLACK_BYTES", 1000)
    disk = CrashDisk()
    catalogue = Catalogue(disk, PATH)
    catalogue.load()
    sizes = []
    for sequence in range(60):
        catalogue.commit([Fact(FactKind.SEALED, 1, 1, 1, 1, 1, b"")], sequence, 2, 1)
        sizes.append(len(disk.content(PATH)))
    limit = 2 * FACT_BYTES + 1000
    assert max(sizes) <= limit
    assert max(sizes) + 2 * FACT_BYTES > limit, "and not before"
    shrunk = [after for before, after in pairwise(sizes) if after < before]
    assert set(shrunk) == {CATALOGUE_HEAD.size + 2 * FACT_BYTES}
    assert len(shrunk) >= 3
    catalogue.close()
    catalogue.close()


def test_a_whole_catalogue_is_read_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    disk = CrashDisk()
    for _ in range(2):
        catalogue = Catalogue(disk, PATH)
        catalogue.load()
        catalogue.commit([Fact(FactKind.SEALED, 1, 1, 1, 1, 1, b"")], 1, 2, 1)
    assert caplog.records == []
