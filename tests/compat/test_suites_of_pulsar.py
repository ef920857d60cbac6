"""How the runner reads what pytest and the programmes of scenarios say; nothing is started here."""

import subprocess
import sys
import tempfile
from pathlib import Path

import junit
import scenarios
import suite_pulsar_client
from outcomes import Outcome, Status, read_allow_list
from task import names_of

HERE = Path(__file__).parent
REPORT = """<testsuites><testsuite>
<testcase classname="pulsar_test.PulsarTest" name="test_a" time="0.5"/>
<testcase classname="pulsar_test.PulsarTest" name="test_b" time="1"><failure message="boom&#10;more"/></testcase>
<testcase classname="interop" name="test_c[x-y]" time="0"><skipped message="why"/></testcase>
</testsuite></testsuites>"""


def test_a_report_of_pytest_is_read_test_by_test(tmp_path: Path) -> None:
    (tmp_path / "results.xml").write_text(REPORT)
    assert junit.read(tmp_path / "results.xml") == [
        Outcome("pulsar_test::PulsarTest::test_a", Status.PASSED, 0.5),
        Outcome("pulsar_test::PulsarTest::test_b", Status.FAILED, 1.0, "boom"),
        Outcome("interop::test_c[x-y]", Status.SKIPPED, 0.0, "why"),
    ]


def test_the_suites_pytest_loads_nothing_of_ours() -> None:
    """Its folder is inside ours, where pytest looks for settings and for conftest.py in all folders above."""
    with tempfile.TemporaryDirectory(prefix="suite-", dir=HERE) as folder:
        (Path(folder) / "one_test.py").write_text("import warnings\ndef test_one(): warnings.warn('x')\n")
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "one_test.py",
            *suite_pulsar_client.flags(Path(folder)),
        ]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_lines_of_scenarios_are_read_and_others_are_not() -> None:
    passed = Outcome("scenario::shared", Status.PASSED, 1.5)
    assert scenarios.outcome_of("PASSED shared 1.5 \n") == passed
    failed = Outcome("scenario::seek", Status.FAILED, 20.0, "wanted 1, found 2")
    assert scenarios.outcome_of("FAILED seek 20.0 wanted 1, found 2\n") == failed
    assert scenarios.outcome_of("DONE\n") is None
    assert scenarios.outcome_of("java.lang.Exception: PASSED\n") is None


def test_a_second_try_asks_for_names_that_pytest_takes() -> None:
    assert names_of(["a::B::test_c", "interop::test_d[x-y]"]) == ["test_c", "test_d"]


def test_what_is_listed_is_run() -> None:
    listed = read_allow_list(HERE / suite_pulsar_client.NAME / "allow.txt")
    assert all(test_id.split("::")[0] + ".py" in suite_pulsar_client.FILES for test_id in listed)
