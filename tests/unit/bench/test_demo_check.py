"""The demo's judge finds every kind of broken promise, and forgives only what a kill explains."""

import json
from array import array
from collections.abc import Sequence

import pytest

from demo import check, flights
from demo.consumer import Batch
from demo.flights import Flights

KILLED = "killed"
OTHER = "other"

# Six flights of two aircraft, and one without a tail number.
DATA = Flights(
    keys=[b"N1", b"N2", b"N1", None, b"N2", b"N1"],
    values=[json.dumps({"row": row}).encode() for row in range(6)],
)
PARTITION_OF = {b"N1": 0, b"N2": 1, None: 0}


def _batch(at: float, rows: Sequence[int], *, partition: int | None = None) -> Batch:
    checksums = DATA.checksums()
    homes = [PARTITION_OF[DATA.keys[row]] if partition is None else partition for row in rows]
    sums = array("L", [checksums[row] for row in rows])
    return Batch(at, array("i", homes), array("q", rows), array("i", rows), sums)


def test_everything_once_and_in_order_is_no_fault() -> None:
    verdict = check.judge(DATA, [(OTHER, _batch(1, [1, 4])), (KILLED, _batch(2, [0, 2, 3, 5]))])
    assert verdict.faults(KILLED) == []
    assert (verdict.flights, verdict.deliveries, verdict.duplicates) == (6, 6, 0)
    assert verdict.per_partition == {0: 4, 1: 2}
    assert verdict.read_by == {OTHER: 2, KILLED: 4}


def test_missing_flight_is_counted() -> None:
    verdict = check.judge(DATA, [(OTHER, _batch(1, [0, 1, 2, 3, 4]))])
    assert verdict.faults(KILLED) == ["1 flights never arrived"]


def test_changed_record_is_neither_accepted_nor_forgotten() -> None:
    batch = _batch(1, range(6))
    batch.checksums[2] ^= 1
    assert check.judge(DATA, [(OTHER, batch)]).faults(KILLED) == [
        "1 flights never arrived",
        "1 records came with another key or value than was sent",
    ]


@pytest.mark.parametrize("row", [-1, 6])
def test_flight_that_was_never_sent_is_a_changed_one(row: int) -> None:
    batch = _batch(1, range(6))
    batch.rows[5] = row
    assert check.judge(DATA, [(OTHER, batch)]).changed == 1


def test_order_counts_within_one_aircraft_only() -> None:
    assert check.judge(DATA, [(OTHER, _batch(1, [1, 0, 3, 2, 4, 5]))]).faults(KILLED) == []
    assert check.judge(DATA, [(OTHER, _batch(1, [2, 0, 1, 3, 4, 5]))]).out_of_order == 1


def test_order_is_that_of_time_not_of_arrival_in_the_pipe() -> None:
    late_first = [(OTHER, _batch(2, [2, 5])), (KILLED, _batch(1, [0, 1, 3, 4]))]
    assert check.judge(DATA, late_first).faults(KILLED) == []


def test_what_the_killed_member_had_read_may_come_again_and_in_its_old_order() -> None:
    again = [(KILLED, _batch(1, [0, 2, 3])), (OTHER, _batch(2, [1, 4])), (OTHER, _batch(3, [0, 2, 3, 5]))]
    verdict = check.judge(DATA, again)
    assert verdict.faults(KILLED) == []
    assert verdict.duplicates == 3


def test_duplicates_of_a_living_member_are_a_fault() -> None:
    verdict = check.judge(DATA, [(OTHER, _batch(1, range(6))), (KILLED, _batch(2, [4]))])
    assert verdict.faults(KILLED) == ["1 flights came twice although their reader was not killed"]


def test_aircraft_in_two_partitions_is_a_fault() -> None:
    read = [(OTHER, _batch(1, [0, 1, 2, 3, 4])), (OTHER, _batch(2, [5], partition=1))]
    assert check.judge(DATA, read).faults(KILLED) == ["1 aircraft are spread over several partitions"]


def test_missing_values_become_null_and_whole_numbers_stay_whole() -> None:
    import pandas  # type: ignore[import-untyped]  # collecting is quicker without

    frame = pandas.DataFrame(
        {
            "dep_time": [517.0, float("nan")],
            "dep_delay": [-1.0, 2.0],
            "tailnum": ["N14228", None],
            "dest": ["IAH", "Z"],
        }
    )
    found = flights.encode(frame)
    assert found.keys == [b"N14228", None]
    assert [json.loads(value) for value in found.values] == [
        {"row": 0, "dep_time": 517, "dep_delay": -1, "tailnum": "N14228", "dest": "IAH"},
        {"row": 1, "dep_time": None, "dep_delay": 2, "tailnum": None, "dest": "Z"},
    ]
    assert b"517," in found.values[0]
    assert flights.row_of(found.values[1]) == 1


def test_null_key_is_not_an_empty_one() -> None:
    assert flights.checksum(None, b"v") != flights.checksum(b"", b"v")


def test_the_data_set_is_read_without_what_its_package_imports() -> None:
    frame = flights.read()
    assert len(frame) == 336_776
    data = flights.encode(frame.head(3))
    assert list(data.keys) == [b"N14228", b"N24211", b"N619AA"]
    assert json.loads(data.values[2])["row"] == 2
