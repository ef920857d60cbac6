"""Every bar is in the report, with a ratio and a verdict, and the JSON holds the raw samples."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bench import disk, report
from bench.__main__ import MEASURES, parse_arguments, select
from bench.process import RunFailed
from bench.runner import Result

BARS = {
    # label: (bar, goal), as they were set
    # Kafka's clients
    "produce 100B": (1.5, 2.5),
    "produce 100B, server CPU": (0.6, 0.3),
    "produce 1KiB": (3.0, 5.0),
    "produce 1KiB, server CPU": (0.25, 0.15),
    "produce 16KiB": (3.0, 4.0),
    "produce 16KiB, server CPU": (0.25, 0.15),
    "one record per request": (2.8, 4.0),
    "one record per request, server CPU": (0.4, 0.3),
    "produce 1KiB over TLS": (1.0, 1.5),
    "consume 1KiB over TLS": (1.0, 1.5),
    "one record per request with rules and quotas, server CPU": (1.03, None),
    "consume 100B, cached": (1.3, 1.5),
    "consume 1KiB, cached": (1.4, 2.0),
    "consume 16KiB, cached": (1.6, 3.0),
    "consume 1KiB, 4x the entry cache": (0.9, 1.2),
    "consume 16KiB, 4x the entry cache": (0.9, 1.2),
    "p99 at 20,000 msg/s": (1.0, 0.5),
    "p99 at 20,000 msg/s, each synced": (0.5, 0.25),
    "p99 at 20,000 msg/s, neither synced": (1.0, 0.5),
    "10,000 topics: create": (1.0, 0.3),
    "10,000 topics: memory": (1.0, 0.3),
    "10,000 topics: restart to serving": (1.0, 0.3),
    # Pulsar's clients
    "Pulsar produce 100B": (1.5, 2.0),
    "Pulsar produce 100B, server CPU": (0.35, 0.2),
    "Pulsar produce 1KiB": (1.5, 2.0),
    "Pulsar produce 1KiB, server CPU": (0.35, 0.2),
    "Pulsar consume 100B": (1.5, 2.0),
    "Pulsar consume 100B, server CPU": (0.35, 0.2),
    "Pulsar consume 1KiB": (1.5, 2.0),
    "Pulsar consume 1KiB, server CPU": (0.35, 0.2),
    "1,000 subscriptions: p99": (1.0, None),
    "Kafka reads Pulsar's, first time": (0.7, None),
    "Pulsar reads Kafka's, first time": (0.7, None),
    # Spark
    "read 100B rows into nothing": (2.5, 3.0),
    "read 100B rows, count, sum, max": (2.5, 3.0),
    "decode and encode 100B by descriptor": (5.0, 8.0),
    "read 1KiB rows into nothing": (2.5, 3.0),
    "read 1KiB rows, count, sum, max": (2.5, 3.0),
    "decode and encode 1KiB by descriptor": (5.0, 8.0),
    # Replicators and functions
    "replicate 1KiB to Kafka, by CPU": (1.5, None),
    "function, 100 B": (2.0, None),
    "function, p50 at 500 msg/s": (0.5, None),
    "function, p99 at 500 msg/s": (0.5, None),
}


def _result(ours: float, theirs: float) -> Result:
    (measure,) = [measure for measure in MEASURES if measure.name == "bulk-1KiB"]
    return Result(
        measure,
        {
            "magnetar": {"produce_mb_s": [ours, ours + 2, ours - 2], "produce_others_cpu_share": [0.01]},
            "kafka": {"produce_mb_s": [theirs], "produce_others_cpu_share": [0.4, 0.5, 0.0]},
        },
        {},
    )


def _shown(results: list[Result]) -> str:
    out = io.StringIO()
    report.show(results, Console(file=out, width=160))
    return out.getvalue()


def test_measures_carry_their_bars() -> None:
    found = {
        figure.label: (figure.bar, figure.goal) for each in MEASURES for figure in each.figures if figure.bar
    }
    assert found == BARS


def test_names_are_unique_so_that_only_one_is_meant() -> None:
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)


def test_table_shows_median_extremes_ratio_bar_and_verdict() -> None:
    (line,) = [line for line in _shown([_result(640.0, 160.0)]).splitlines() if "produce 1KiB, MB/s" in line]
    for part in ("640", "(638..642)", "160", "4.00x", ">= 3x", ">= 5x", "pass"):
        assert part in line


def test_failed_bar_says_so() -> None:
    (line,) = [line for line in _shown([_result(160.0, 160.0)]).splitlines() if "produce 1KiB, MB/s" in line]
    assert "fail" in line


def test_an_undecided_bar_is_shown_with_what_the_pairs_say_and_counted_at_the_end() -> None:
    result = _result(320.0, 100.0)
    result.samples["magnetar"]["produce_mb_s"] = [320.0, 310.0, 280.0]
    result.samples["kafka"]["produce_mb_s"] = [100.0, 100.0, 100.0]
    text = _shown([result, _result(640.0, 160.0), _result(160.0, 160.0)])
    assert "undecided 2.80..3.20" in text
    assert text.splitlines()[-1] == "bars: 1 passed, 1 failed, 1 undecided"


def test_measure_that_shared_the_machine_is_marked() -> None:
    text = _shown([_result(640.0, 160.0)])
    assert "during kafka's runs other processes and the kernel took 40% of the machine" in text
    assert "during magnetar's runs" not in text


def test_failure_of_a_server_is_shown() -> None:
    result = _result(1.0, 1.0)
    result.failures["magnetar"] = "magnetar could not start: [Errno 28] no space"
    assert "could not start: [Errno 28] no space" in _shown([result])


def test_document_keeps_rows_and_raw_samples(tmp_path: Path) -> None:
    target = tmp_path / "results" / "latest.json"
    report.write(target, report.document([_result(640.0, 160.0)], {"commit": "abc"}))
    found = json.loads(target.read_text())
    assert found["commit"] == "abc"
    row = next(row for row in found["rows"] if row["field"] == "produce_mb_s")
    assert (row["ratio"], row["verdict"]) == (4.0, "pass")
    assert row["magnetar"] == {"median": 640.0, "lowest": 638.0, "highest": 642.0, "runs": 3}
    assert found["measures"][0]["samples"]["magnetar"]["produce_mb_s"] == [640.0, 642.0, 638.0]
    assert [path.name for path in target.parent.iterdir()] == ["latest.json"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(1_277_792.4, "1,277,792"), (155.6, "156"), (6.824, "6.82"), (0.0519, "0.0519"), (0.0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert report.show_number(value) == text


def test_only_takes_names_and_patterns() -> None:
    assert [measure.name for measure in select("single,bulk-1*", quick=True)] == [
        "bulk-100B",
        "bulk-1KiB",
        "bulk-16KiB",
        "single",
    ]
    with pytest.raises(RunFailed, match="no measure is called nothing"):
        select("single,nothing", quick=False)


def test_quick_is_a_part_of_the_whole() -> None:
    quick, whole = select(None, quick=True), select(None, quick=False)
    assert set(quick) < set(whole)


def test_beside_another_magnetar_the_table_has_the_ratio_of_pairs() -> None:
    result = _result(300.0, 100.0)
    result.samples = {
        "magnetar": {"produce_mb_s": [330.0, 300.0, 360.0]},
        "base": {"produce_mb_s": [300.0, 300.0, 300.0]},
    }
    text = io.StringIO()
    report.show([result], Console(file=text, width=150))
    assert "1.100x" in text.getvalue()
    assert "1.000..1.200" in text.getvalue()
    assert "Apache Kafka" not in text.getvalue()
    assert text.getvalue().splitlines()[-1] == "no worse by 3%: 1 passed, 0 failed, 0 undecided"
    (row,) = json.loads(json.dumps(report.document([result], {})))["beside_base"]
    assert (row["field"], row["median"], row["count"]) == ("produce_mb_s", 1.1, 3)


def test_a_base_takes_the_place_of_the_peers() -> None:
    assert parse_arguments(["--base", "bin/magnetar"]).servers == ["magnetar", "base"]


@pytest.mark.parametrize("words", [["--servers", "redis"], ["--pairs", "0"]])
def test_wrong_arguments_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(words)
    assert "takes" in capsys.readouterr().err


def test_a_disk_that_stalled_before_a_run_is_told() -> None:
    result = _result(300.0, 100.0)
    result.samples["magnetar"] |= _paces(disk.Pace(0.4, 0.0, 9.0), disk.Pace(0.3, 0.025, 250.0))
    result.samples["kafka"] = _paces(disk.Pace(0.4, 0.001, 22.0), disk.Pace(0.3, 0.0, 5.0))
    (said,) = report.noise(result)
    assert "before 1 of magnetar's runs the disk stalled by itself, up to 2.5% of the time and 250 ms" in said


def _paces(*paces: disk.Pace) -> dict[str, list[float]]:
    return {f"disk_{name}": [getattr(pace, name) for pace in paces] for name in disk.Pace._fields}
