import json
from typing import Any

from magnetar.pipelines.worker.progress import ENDS_KEPT, PARTITIONS_SHOWN, RATE_S, Ends, Progress, lags_of


def source(latest: dict[str, Any] | None, reached: dict[str, Any] | None) -> dict[str, Any]:
    return {"latestOffset": latest and json.dumps(latest), "endOffset": reached and json.dumps(reached)}


def event(rows: int, *sources: dict[str, Any], ms: int = 100, batch: int = 0) -> dict[str, Any]:
    return {
        "batchId": batch,
        "numInputRows": rows,
        "timestamp": "2026-01-01T00:00:00Z",
        "durationMs": {"triggerExecution": ms, "addBatch": ms // 2},
        "sources": list(sources),
    }


class TestLags:
    def test_lag_is_what_lies_behind_the_last_batch(self) -> None:
        found = lags_of([source({"t": {"0": 10, "1": 5}}, {"t": {"0": 7, "1": 5}})])
        assert found == {"t-0": 3, "t-1": 0}

    def test_a_new_partition_is_behind_by_all_it_has(self) -> None:
        assert lags_of([source({"t": {"0": 10, "1": 5}}, {"t": {"0": 10}})]) == {"t-0": 0, "t-1": 5}

    def test_what_is_not_said_is_not_known(self) -> None:
        assert lags_of([source(None, {"t": {"0": 7}})]) is None
        assert lags_of([{"latestOffset": "17", "endOffset": "no json"}]) is None
        assert lags_of([]) is None


class TestProgress:
    def test_nothing_is_said_of_what_has_not_happened(self) -> None:
        assert Progress().status(0.0) == {"rows": 0, "batches": 0, "rows_per_second": 0.0}

    def test_batches_are_summed_and_the_last_one_shown(self) -> None:
        progress = Progress()
        for number, ms in enumerate((100, 300, 200)):
            progress.add(event(10, ms=ms, batch=number), now=float(number))
        status = progress.status(2.0)
        assert (status["rows"], status["batches"]) == (30, 3)
        assert status["batch_ms"] == {"median": 200, "max": 300}
        assert status["last_batch"] == {"id": 2, "rows": 10, "duration_ms": 200, "at": "2026-01-01T00:00:00Z"}
        assert status["durations_ms"] == {"triggerExecution": 200, "addBatch": 100}

    def test_the_rate_is_of_the_last_seconds_and_falls_to_nothing(self) -> None:
        progress = Progress()
        progress.add(event(150), now=0.0)
        assert progress.status(1.0)["rows_per_second"] == 10.0
        assert progress.status(RATE_S + 1)["rows_per_second"] == 0.0

    def test_records_of_slices_are_counted_by_their_offsets(self) -> None:
        progress = Progress(counts_offsets=True)
        first = {"startOffset": None, "endOffset": '{"t":{"0":40,"1":2}}'}
        second = {"startOffset": '{"t":{"0":40,"1":2}}', "endOffset": '{"t":{"0":45,"1":2,"2":1}}'}
        progress.add({**event(3), "sources": [first]}, now=0.0)
        progress.add({**event(1), "sources": [second]}, now=0.0)
        status = progress.status(0.0)
        assert (status["rows"], status["last_batch"]["rows"]) == (48, 6)

    def test_a_trigger_that_found_nothing_is_no_batch_but_says_the_lag(self) -> None:
        progress = Progress()
        idle = {**event(0, source({"t": {"0": 9}}, {"t": {"0": 4}})), "durationMs": {"triggerExecution": 3}}
        progress.add(idle, now=0.0)
        status = progress.status(0.0)
        assert (status["batches"], status["lag"], status["lags"]) == (0, 5, {"t-0": 5})

    def test_of_many_partitions_those_furthest_behind_are_shown_and_all_are_counted(self) -> None:
        progress = Progress()
        ends = {str(number): number for number in range(1000)}
        progress.add(event(1, source({"t": ends}, {"t": dict.fromkeys(ends, 0)})), now=0.0)
        status = progress.status(0.0)
        assert status["lag"] == sum(range(1000))
        assert len(status["lags"]) == PARTITIONS_SHOWN
        assert min(status["lags"].values()) == 1000 - PARTITIONS_SHOWN

    def test_lag_in_seconds_is_how_long_the_next_record_has_been_there(self) -> None:
        progress = Progress()
        for now, end, reached in ((0.0, 5, 5), (10.0, 9, 5), (20.0, 12, 9)):
            progress.add(event(1, source({"t": {"0": end}}, {"t": {"0": reached}})), now=now)
        status = progress.status(23.0)
        assert (status["lag"], status["lag_s"]) == (3, 3.0)

    def test_lag_in_seconds_is_of_sources_that_say_both(self) -> None:
        progress = Progress()
        sources = source({"t": {"0": 7}}, {"t": {"0": 7}}), source({"u": {"0": 100}}, None)
        progress.add(event(1, *sources), now=0.0)
        assert progress.status(9.0)["lag_s"] == 0.0


class TestEnds:
    def test_nothing_is_behind_where_all_was_reached(self) -> None:
        ends = Ends()
        assert ends.behind_s(5.0) == 0.0
        ends.add(10, 10, 0.0)
        assert ends.behind_s(5.0) == 0.0

    def test_a_pipeline_that_stands_is_behind_by_ever_more(self) -> None:
        ends = Ends()
        for now in range(100):
            ends.add(10 + now, 10, float(now))
        assert ends.behind_s(100.0) == 99.0  # at 0 the end was where it stands

    def test_what_does_not_grow_is_as_old_as_when_it_came(self) -> None:
        ends = Ends()
        for now in range(100):
            ends.add(11, 10, float(now))
        assert ends.behind_s(100.0) == 100.0

    def test_a_topic_that_was_deleted_leaves_nothing_to_wait_for(self) -> None:
        ends = Ends()
        ends.add(1000, 10, 0.0)
        ends.add(10, 10, 1.0)
        assert ends.behind_s(2.0) == 0.0

    def test_one_far_behind_keeps_few_rows_and_is_right_to_a_row(self) -> None:
        ends = Ends()
        for now in range(20_000):
            ends.add(now + 5_000, now, float(now))
            assert len(ends) <= ENDS_KEPT
        assert abs(ends.behind_s(20_000.0) - 5_000) <= 2 * 20_000 / ENDS_KEPT
