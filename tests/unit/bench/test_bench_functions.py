"""Pulsar's runner and Magnetar get the same function; twice as fast is the bar."""

import importlib
from pathlib import Path

import pytest

from bench import pulsar_runner
from bench.client import Librdkafka
from bench.function_measures import CLASS, CODE, FUNCTION_MEASURES, rate
from bench.measures import FULL, Tools
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from bench.pulsar_runner import PulsarRunner
from bench.runner import Result
from bench.servers import Magnetar
from bench.stats import Verdict


def test_the_function_returns_what_it_gets() -> None:
    module, _, name = CLASS.partition(".")
    assert module == CODE.stem
    function = getattr(importlib.import_module(f"bench.jobs.{module}"), name)
    assert function().process("text", None) == "text"


def test_pulsars_runner_reads_all_of_the_input_and_does_not_compress() -> None:
    told = pulsar_runner.details(CLASS, "in", "out")
    assert told["source"] == {
        "inputSpecs": {"persistent://public/default/in": {}},
        "subscriptionType": "SHARED",
        "subscriptionPosition": "EARLIEST",
    }
    assert told["sink"] == {
        "topic": "persistent://public/default/out",
        "producerSpec": {"compressionType": "NONE"},
    }


def test_a_distribution_without_the_runner_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PEERS_HOME", str(tmp_path))
    script = tmp_path / "pulsar"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with (
        pytest.raises(RunFailed, match="has no runner of Python functions here"),
        PulsarRunner(script).running(Addresses("", ""), CODE, CLASS, "in", "out", tmp_path),
    ):
        pass


def test_without_pulsar_there_is_no_runner_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="pulsar script is not here"):
        rate(Magnetar(tmp_path / "magnetar"), Tools(Librdkafka(tmp_path / "none"), None), FULL)


def test_twice_as_many_messages_and_half_the_delay_are_the_bars() -> None:
    for measure in FUNCTION_MEASURES:
        barred = [figure for figure in measure.figures if figure.bar]
        assert barred
        for figure in barred:
            assert figure.against is not None
            times = 2.0 if figure.bar == 2.0 else 0.5
            for ours, verdict in ((times, Verdict.PASS), (1.0, Verdict.FAIL)):
                samples = {figure.field: [ours], figure.against: [1.0]}
                assert Result(measure, {"magnetar": samples}).compare(figure).verdict is verdict
