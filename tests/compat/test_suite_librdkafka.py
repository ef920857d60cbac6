"""How the runner reads librdkafka's table of tests and its reports; nothing is fetched or built here."""

import json
import threading
import time
from pathlib import Path

import pytest
import suite_librdkafka as suite
from librdkafka_places import NO_AUTO_CREATION, Providers, places
from outcomes import Status, read_allow_list
from scorecard import read_known

TABLE = """
struct test tests[] = {
    {.name = "<MAIN>", .flags = TEST_F_LOCAL},
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0018_cgrp_term, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0028_long_topicnames,
          TEST_F_KNOWN_ISSUE,
          .extra = "long"),
    _TEST(0045_subscribe_update, 0, TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0045_subscribe_update_topic_remove,
          0,
          TEST_BRKVER(0, 9, 0, 0),
          .scenario = "noautocreate"),
    _TEST(0045_subscribe_many_updates, 0),
    _TEST(0045_subscribe_update_mock, TEST_F_LOCAL),
    _TEST(0055_producer_latency, TEST_F_KNOWN_ISSUE_WIN32),
    _TEST(0139_offset_validation_mock, 0),
    _TEST(8000_idle, TEST_F_MANUAL),
    {NULL}};
"""


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "test.c").write_text(TABLE)
    monkeypatch.setattr(suite, "FULL", ("0018", "0045"))
    monkeypatch.setattr(suite, "CONSUMER", ("0018", "0033"))
    return tmp_path


def test_catalogue_leaves_out_what_needs_no_broker(tests: Path) -> None:
    jobs = suite.catalogue(tests, everything_full=False)
    assert [test_id for job in jobs for test_id in job.ids] == [
        "full:0018_cgrp_term",
        "full:0045_subscribe_update",
        "full:0045_subscribe_many_updates",
        "full:0045_subscribe_update_topic_remove",
        "0055_producer_latency",
        "consumer:0018_cgrp_term",
    ]
    assert [(job.protocol, job.full) for job in jobs] == [
        ("classic", True),
        ("classic", True),
        ("classic", True),
        ("classic", False),
        ("consumer", True),
    ]


def test_what_runs_in_full_runs_in_quick_mode_only_where_that_is_said(
    tests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "PASS_WITHOUT_BROKER", frozenset())
    monkeypatch.setattr(suite, "FULL", ("0018", "0045", "0055"))
    classic = [job for job in suite.catalogue(tests, everything_full=False) if job.protocol == "classic"]
    assert {job.number for job in classic if job.full} == {"0018", "0045", "0055"}
    assert {job.number for job in classic if not job.full} == {"0055"}


def test_the_longest_begin_first_whatever_their_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "LONGEST_FIRST", ("0091", "0018"))
    modes = (("0001", False), ("0018", True), ("0045", True), ("0091", False))
    jobs = suite.longest_first([suite.Job(number, full, ()) for number, full in modes])
    assert [job.number for job in jobs] == ["0091", "0018", "0001", "0045"]


def test_every_test_that_is_said_to_be_long_runs() -> None:
    listed = read_allow_list(Path(suite.__file__).parent / suite.NAME / "allow.txt")
    known = read_known(Path(suite.__file__).parent / suite.NAME / "known.txt")
    numbers = {test_id.rpartition(":")[2][:4] for test_id in (*listed, *known)}
    assert set(suite.LONGEST_FIRST) <= numbers


def test_a_test_runs_where_the_server_is_what_it_wants(tests: Path, tmp_path: Path) -> None:
    jobs = suite.catalogue(tests, everything_full=False)
    alone = next(job for job in jobs if job.names == ("0045_subscribe_update_topic_remove",))
    with Providers() as providers:
        known = places(tmp_path, providers)
    assert known[alone.place].environment == {"TEST_SCENARIO": "noautocreate"}
    assert known[alone.place].profile.settings["auto.create.topics.enable"] == "false"
    secured = known[suite.Job("0135", True, ("0135_sasl_credentials",)).place]
    assert secured.lines["security.protocol"] == "sasl_ssl"
    assert Path(secured.environment["SSL_pkcs"]).exists()


def test_every_test_has_a_place(tmp_path: Path) -> None:
    plain = [suite.Job(number, False, ()) for number in (*suite.PLACES, "0001")]
    listed = [suite.Job(number, False, (), scenario=NO_AUTO_CREATION) for number in ("0045", "0107", "0111")]
    with Providers() as providers:
        assert {job.place for job in (*plain, *listed)} == set(places(tmp_path, providers))


def test_everything_can_run_in_full(tests: Path) -> None:
    jobs = suite.catalogue(tests, everything_full=True)
    assert "full:0055_producer_latency" in [test_id for job in jobs for test_id in job.ids]


def test_every_listed_test_is_one_that_a_whole_run_runs() -> None:
    """A list that names more than runs fails every whole run after ten minutes, whatever the server does."""
    listed = read_allow_list(Path(suite.__file__).parent / suite.NAME / "allow.txt")
    for test_id in listed:
        mode, _, name = test_id.rpartition(":")
        runs = {"full": suite.FULL, "consumer": suite.CONSUMER}
        left_out = {*suite.FULL, *suite.PASS_WITHOUT_BROKER} - suite.IN_BOTH
        assert name[:4] in runs[mode] if mode else name[:4] not in left_out, test_id


def test_report_is_read_test_by_test(tmp_path: Path) -> None:
    job = suite.Job("0045", True, ("0045_a", "0045_b", "0045_c"))
    results, output = tmp_path / "report.json", tmp_path / "output.log"
    states = {"0045_a": {"state": "PASSED", "duration": 1.5}, "0045_b": {"state": "FAILED", "duration": 2.0}}
    results.write_text(json.dumps({"tests": {**states, "0045_c": {"state": "SKIPPED", "duration": 0.0}}}))
    output.write_text(
        '\x1b[31m### Test "0045_b (part)" failed at 0045.c:1:main() at now: ###\n'
        "part: do_it():12: expected 1, not 2\n\x1b[0m\n"
        "[0045_c /  0.000s] WARN: SKIPPING TEST: no such thing\n"
    )
    passed, failed, skipped = suite._read_results(job, results, output, "ended with 1", 9.0)
    assert (passed.status, passed.seconds) == (Status.PASSED, 1.5)
    assert failed.status is Status.FAILED
    assert failed.detail == "ended with 1: part: do_it():12: expected 1, not 2"
    assert (skipped.status, skipped.detail) == (Status.SKIPPED, "no such thing")


def test_programme_that_leaves_no_report_has_failed(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    output.write_text("assertion failed: cnt > 0\n\n")
    job = suite.Job("0001", False, ("0001_multiobj",))
    (outcome,) = suite._read_results(job, tmp_path / "none.json", output, "ended by SIGABRT", 3.0)
    assert outcome.status is Status.FAILED
    assert outcome.detail == "ended by SIGABRT: assertion failed: cnt > 0"


def test_what_a_job_started_ends_with_its_time(tmp_path: Path) -> None:
    output = tmp_path / "output.log"
    environment = {"PATH": "/usr/bin:/bin"}
    waits = ["sh", "-c", "sleep 60 & echo $!; wait"]
    how = suite._spawn(waits, tmp_path, environment, output, 1.0, threading.Event())
    assert how == "did not end within 1 s"
    status = Path("/proc") / output.read_text().strip() / "status"
    deadline = time.monotonic() + 10
    while status.exists() and "zombie" not in status.read_text():
        assert time.monotonic() < deadline, "the child of the test still runs"
