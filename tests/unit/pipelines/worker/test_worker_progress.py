import json
from typing import Any

from magnetar.pipelines.worker.progress import PARTITIONS_SHOWN, RATE_S, Progress, lags_of


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
