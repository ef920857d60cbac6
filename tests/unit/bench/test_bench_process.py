"""CPU time, memory and ends of real processes."""

import os
import subprocess
import sys
import time

import pytest

from bench import process
from bench.process import RunFailed


def test_cpu_time_of_a_process_agrees_with_its_own_clock() -> None:
    begin, before = time.process_time(), process.cpu_time(os.getpid())
    while time.process_time() - begin < 0.2:
        sum(range(10_000))
    spent = process.cpu_time(os.getpid()) - before
    assert spent.total == pytest.approx(time.process_time() - begin, abs=0.05)


def test_cpu_of_a_tree_has_what_ended_and_what_still_runs() -> None:
    """The parent spends nothing to speak of; one child has ended, and one of its children goes on."""
    spend = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {spend!r}])
with subprocess.Popen([sys.executable, "-c", {spend + "print('spent', flush=True); input()"!r}]):
    pass
"""
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process_:
        assert process_.stdout is not None
        assert process_.stdout.readline() == b"spent\n"
        assert process.tree_cpu(process_.pid) > 0.55 > process.cpu_time(process_.pid).total
        assert process.tree_cpu(os.getpid()) > process.tree_cpu(process_.pid)
        process_.communicate(b"\n")
    with pytest.raises(RunFailed, match="has ended"):
        process.tree_cpu(process_.pid)


def test_share_of_the_machine_is_never_less_than_nothing() -> None:
    processors = os.cpu_count() or 1
    assert process.share_of_machine(3.0, 6.0) == pytest.approx(0.5 / processors)
    assert process.share_of_machine(-0.01, 6.0) == 0.0


def test_process_start_lies_before_now_and_after_its_parent_started() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        started = process.started_at(child.pid)
        assert process.started_at(os.getpid()) <= started
        assert started <= time.clock_gettime(time.CLOCK_BOOTTIME)
        child.kill()


def test_resident_memory_is_that_of_an_interpreter() -> None:
    assert 5 < process.resident_mb(os.getpid()) < 10_000


def test_client_output_and_cost_come_back() -> None:
    done = process.run([sys.executable, "-c", "print('hello', 'x' * sum(range(10)))"], seconds_max=30)
    assert done.output == f"hello {'x' * 45}\n"
    assert 0 < done.cpu.total < 30


def test_failing_client_is_one_sentence_with_its_last_words() -> None:
    with pytest.raises(RunFailed, match="ended with 3: broker gone"):
        process.run([sys.executable, "-c", "print('broker gone'); raise SystemExit(3)"], seconds_max=30)


def test_client_that_hangs_is_killed() -> None:
    with pytest.raises(RunFailed, match="did not finish within 0 s"):
        process.run([sys.executable, "-c", "import time; time.sleep(60)"], seconds_max=0.2)


def test_gone_process_is_a_sentence() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    with pytest.raises(RunFailed, match="has ended"):
        process.cpu_time(child.pid)


def test_process_that_ignores_the_polite_signal_is_killed() -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('on', flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdin is not None
    with child.stdout, child.stdin:
        assert child.stdout.readline() == b"on\n"
        process.end(child, grace_seconds=0.1)
    assert child.returncode == -9


def test_memory_that_was_used_is_free_again() -> None:
    before = process.resident_mb(os.getpid())
    process.use_memory(64_000_001)
    assert process.resident_mb(os.getpid()) < before + 32
