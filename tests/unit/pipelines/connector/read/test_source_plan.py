"""Planning: every wanted offset is read once, files begin where records begin, and tasks are of about the same size."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.client.rest import Located, Segment
from magnetar.pipelines.connector.read.plan import (
    MIB,
    PIECE_BYTES_MAX,
    Piece,
    batch_tasks,
    pieces_of,
    stream_tasks,
)


def _segment(ledger: int, first: int, last: int, *, record_bytes: int = 100, every: int = 1000) -> Segment:
    """A file of equal records, with a place to begin at every so many of them."""
    cuts = tuple((offset, (offset - first) * record_bytes) for offset in range(first, last + 1, every))
    size = (last + 1 - first) * record_bytes
    return Segment(
        ledger=ledger,
        path=f"/data/segments/{ledger}",
        sealed=True,
        first_offset=first,
        last_offset=last,
        max_timestamp_ms=0,
        data_bytes=size,
        bytes=size,
        cuts=cuts,
        end_position=size,
    )


def _located(
    *segments: Segment,
    end: int,
    tail_from: int | None = None,
    topic: str = "a",
    partition: int = 0,
    aborted: tuple[tuple[int, int, int], ...] = (),
) -> Located:
    return Located(
        topic=topic,
        full=f"persistent://public/default/{topic}",
        partition=partition,
        earliest=0,
        high_watermark=end,
        last_stable=end,
        from_offset=0,
        to_offset=end,
        tail_from=tail_from if tail_from is not None else segments[-1].last_offset + 1 if segments else 0,
        segments=segments,
        aborted=aborted,
        error=None,
        reason=None,
    )


def _check_covers(pieces: list[Piece], first: int, end: int) -> None:
    """Side by side, in order, and each with bytes that hold its records."""
    assert [each.from_offset for each in pieces][:1] == [first]
    assert pieces[-1].to_offset == end
    assert all(one.to_offset == other.from_offset for one, other in pairwise(pieces))
    for each in pieces:
        assert each.from_offset < each.to_offset
        assert each.size > 0
        if each.path is not None:
            assert each.position < each.end_position


def test_files_then_the_broker() -> None:
    located = _located(_segment(1, 0, 9_999), _segment(2, 10_000, 19_999), end=20_500)
    pieces = pieces_of(located, 0, 20_500)
    _check_covers(pieces, 0, 20_500)
    assert [each.path for each in pieces] == ["/data/segments/1", "/data/segments/2", None]
    assert pieces[2].size == 500 * 100  # as large as those in files are


def test_only_the_bytes_of_the_range() -> None:
    located = _located(_segment(1, 0, 9_999), end=10_000)
    (piece,) = pieces_of(located, 2_500, 3_200)
    assert (piece.position, piece.end_position) == (200_000, 400_000)
    assert (piece.from_offset, piece.to_offset) == (2_500, 3_200)
    (piece,) = pieces_of(located, 9_999, 10_000)
    assert (piece.position, piece.end_position) == (900_000, 1_000_000)


def test_without_files_and_with_holes_the_broker_is_asked() -> None:
    located = _located(_segment(1, 0, 999), _segment(2, 2_000, 2_999), end=3_000)
    assert [each.path for each in pieces_of(located, 0, 3_000)] == [
        "/data/segments/1",
        None,
        "/data/segments/2",
    ]
    (piece,) = pieces_of(located, 0, 3_000, files=False)
    assert piece.path is None
    assert pieces_of(_located(end=10), 3, 10)[0].records == 7


def test_a_piece_knows_the_aborted_transactions_that_it_meets() -> None:
    located = _located(_segment(1, 0, 9_999), end=10_000, aborted=((7, 100, 200), (8, 4_000, 6_000)))
    (piece,) = pieces_of(located, 0, 10_000)
    assert piece.part(0, 100).aborted == ()
    assert piece.part(200, 201).aborted == ((7, 100, 200),)
    assert piece.part(201, 4_000).aborted == ()
    assert piece.part(5_000, 5_001).aborted == ((8, 4_000, 6_000),)


def test_one_large_partition_becomes_tasks_of_one_size() -> None:
    large = _segment(1, 0, 9_999_999, every=40_000)  # 1 GB
    tasks = batch_tasks(
        pieces_of(_located(large, end=10_000_000), 0, 10_000_000), cores=2, tasks_min=None, records_max=None
    )
    _check_covers([piece for task in tasks for piece in task], 0, 10_000_000)
    sizes = [sum(piece.size for piece in task) for task in tasks]
    assert len(tasks) == 6  # three for each core
    assert max(sizes) <= PIECE_BYTES_MAX
    assert max(sizes) < 1.3 * min(sizes)


def test_many_small_partitions_share_tasks() -> None:
    pieces = [
        piece
        for partition in range(1000)
        for piece in pieces_of(_located(_segment(partition, 0, 999), end=1000, partition=partition), 0, 1000)
    ]
    tasks = batch_tasks(pieces, cores=2, tasks_min=None, records_max=None)
    assert len(tasks) <= 14
    assert [piece.partition for task in tasks for piece in task] == list(range(1000))
    sizes = [sum(piece.size for piece in task) for task in tasks]
    assert max(sizes) < 2 * sum(sizes) / len(sizes)


@pytest.mark.parametrize("tasks_min", [1, 3, 64, 1000])
def test_at_least_so_many_tasks(tasks_min: int) -> None:
    located = _located(_segment(1, 0, 99), end=120)
    for tasks in (
        batch_tasks(pieces_of(located, 0, 120), cores=2, tasks_min=tasks_min, records_max=None),
        stream_tasks(pieces_of(located, 0, 120), tasks_min=tasks_min, records_max=None),
    ):
        assert len(tasks) >= min(tasks_min, 120)
        _check_covers([piece for task in tasks for piece in task], 0, 120)


def test_at_most_so_many_records_in_a_task() -> None:
    located = [_located(_segment(number, 0, 999), end=1500, partition=number) for number in range(3)]
    pieces = [piece for each in located for piece in pieces_of(each, 0, 1500)]
    for tasks in (
        batch_tasks(pieces, cores=2, tasks_min=None, records_max=400),
        stream_tasks(pieces, tasks_min=None, records_max=400),
    ):
        assert max(sum(piece.records for piece in task) for task in tasks) <= 400
        for number in range(3):
            own = [piece for task in tasks for piece in task if piece.partition == number]
            _check_covers(own, 0, 1500)


def test_a_stream_keeps_a_partition_in_one_task_however_large() -> None:
    large = _located(_segment(1, 0, 9_999_999, every=40_000), end=10_000_050)
    small = [_located(end=10, topic="b", partition=number) for number in range(4)]
    pieces = [piece for each in (large, *small) for piece in pieces_of(each, 0, each.high_watermark)]
    tasks = stream_tasks(pieces, tasks_min=None, records_max=None)
    assert [len({(piece.topic, piece.partition) for piece in task}) for task in tasks] == [1, 4]
    _check_covers(list(tasks[0]), 0, 10_000_050)


def test_a_stream_is_dealt_out_in_the_same_way_wherever_its_records_lie() -> None:
    def dealt(*, files: bool) -> list[list[tuple[int, int, int]]]:
        located = [_located(_segment(number, 0, 5_999), end=6_000, partition=number) for number in range(3)]
        located += [_located(_segment(number, 0, 10), end=11, partition=number) for number in range(3, 9)]
        pieces = [piece for each in located for piece in pieces_of(each, 0, each.high_watermark, files=files)]
        return [
            [(piece.partition, piece.from_offset, piece.to_offset) for piece in task]
            for task in stream_tasks(pieces, tasks_min=None, records_max=None)
        ]

    assert dealt(files=True) == dealt(files=False)


@given(
    lengths=st.lists(st.integers(1, 3_000), max_size=4),
    tail=st.integers(0, 500),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    tasks_min=st.none() | st.integers(1, 20),
    records_max=st.none() | st.integers(50, 5_000),
    every=st.integers(1, 700),
)
def test_every_wanted_offset_is_read_once(
    lengths: list[int],
    tail: int,
    bounds: tuple[float, float],
    tasks_min: int | None,
    records_max: int | None,
    every: int,
) -> None:
    segments: list[Segment] = []
    end = 0
    for ledger, length in enumerate(lengths):
        segments.append(_segment(ledger, end, end + length - 1, record_bytes=7, every=every))
        end += length
    located = _located(*segments, end=end + tail, tail_from=end)
    end += tail
    first, stop = sorted(int(end * share) for share in bounds)
    pieces = pieces_of(located, first, stop)
    for tasks in (
        batch_tasks(pieces, cores=2, tasks_min=tasks_min, records_max=records_max),
        stream_tasks(pieces, tasks_min=tasks_min, records_max=records_max),
    ):
        cut = [piece for task in tasks for piece in task]
        if first == stop:
            assert not cut
            continue
        _check_covers(cut, first, stop)
        for piece in cut:
            if piece.path is not None:
                segment = segments[piece.ledger]
                begins = {position: offset for offset, position in segment.cuts}
                assert begins[piece.position] <= piece.from_offset
                assert begins.get(piece.end_position, segment.last_offset + 1) >= piece.to_offset


def test_pieces_are_large_enough_to_be_worth_a_task() -> None:
    located = _located(_segment(1, 0, 99_999), end=100_000)  # 10 MB
    assert len(batch_tasks(pieces_of(located, 0, 100_000), cores=64, tasks_min=None, records_max=None)) <= 2
    assert 8 * MIB <= PIECE_BYTES_MAX
