"""MirrorMaker 2 copies one topic and does nothing else; a copy's figures are those of what was counted."""

import os
from pathlib import Path

import pytest

from bench.arrivals import Arrivals
from bench.client import Librdkafka
from bench.measures import FULL, Tools
from bench.mirror import MirrorMaker, settings
from bench.process import RunFailed
from bench.replicator_measures import REPLICATOR_MEASURES, replicate, sample
from bench.runner import Result
from bench.servers import Magnetar
from bench.stats import Samples, Verdict


def test_mirror_maker_copies_one_topic_one_way() -> None:
    found = dict(line.split(" = ") for line in settings("a:1", "b:2", "t", 4).splitlines())
    assert (found["here.bootstrap.servers"], found["there.bootstrap.servers"]) == ("a:1", "b:2")
    assert (found["here->there.topics"], found["tasks.max"]) == ("t", "4")
    assert found["there->here.enabled"] == "false"
    assert {value for name, value in found.items() if name.startswith(("emit.", "sync."))} == {"false"}


def test_mirror_maker_without_maven_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    mirror = MirrorMaker(tmp_path / "kafka", tmp_path)
    with (
        pytest.raises(RunFailed, match="needs mvn, java on PATH"),
        mirror.running("a:1", "b:2", "t", 4, tmp_path),
    ):
        pass


def test_figures_of_a_copy_are_of_what_was_counted() -> None:
    spent = {"copying": 2.0, "target": 1.5, "busy": 4.0}
    found = sample("mirror", Arrivals(1_000_000, 8.0, spent))
    assert found["mirror_mb_s"] == pytest.approx(128.0)
    assert found["mirror_mb_cpu_s"] == pytest.approx(512.0)
    assert found["mirror_target_cpu_s_gb"] == pytest.approx(1.5 / 1.024)
    assert found["mirror_others_cpu_share"] == pytest.approx(0.5 / 8.0 / (os.cpu_count() or 1))


def test_without_kafka_there_is_nothing_to_copy_to(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="kafka script is not here"):
        replicate(Magnetar(tmp_path / "magnetar"), Tools(Librdkafka(tmp_path / "none"), None), FULL)


@pytest.mark.parametrize(
    ("ours", "theirs", "verdicts"),
    [
        ((60.0, 30.0), (20.0, 20.0), [Verdict.PASS, Verdict.PASS]),
        ((49.0, 29.0), (20.0, 20.0), [Verdict.FAIL, Verdict.FAIL]),
        ((60.0, 30.0), (), [Verdict.PASS, Verdict.NONE]),
    ],
)
def test_a_replicator_has_a_rate_to_reach_and_a_peer_to_beat(
    ours: tuple[float, ...], theirs: tuple[float, ...], verdicts: list[Verdict]
) -> None:
    (measure,) = REPLICATOR_MEASURES
    samples: Samples = {
        f"{name}_{field}": [value]
        for name, values in (("replicator", ours), ("mirror", theirs))
        for field, value in zip(("mb_s", "mb_cpu_s"), values, strict=False)
    }
    result = Result(measure, {"magnetar": samples})
    assert [result.compare(figure).verdict for figure in measure.figures] == verdicts
