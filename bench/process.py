"""Processes as the kernel counts them: CPU time, memory, start, and running one to its end.

CPU times come from the process's clock (clock_getcpuclockid(3)), in seconds, to the nanosecond.  What of it was user
code and what the kernel's comes from `/proc/PID/stat` (proc(5)), which counts in ticks of usually 10 ms.
"""

import contextlib
import mmap
import os
import resource
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_CLOCK_OF_ALL_THREADS = 2  # Linux' CPUCLOCK_SCHED
END_SECONDS_MAX = 10.0
OUTPUT_BYTES_MAX = 4_000_000  # of a tool's output: more than any run of ours prints


class RunFailed(Exception):
    """A program did not do what the measure needs; the text is one sentence for the report."""


@dataclass(frozen=True)
class CpuTime:
    """Seconds in user code and in the kernel."""

    user: float
    system: float

    @property
    def total(self) -> float:
        return self.user + self.system

    def __sub__(self, earlier: "CpuTime") -> "CpuTime":
        return CpuTime(self.user - earlier.user, self.system - earlier.system)


@dataclass(frozen=True)
class Finished:
    """A client that ended with a status that means success: what it printed and what it cost."""

    output: str
    seconds: float
    cpu: CpuTime


def cpu_time(pid: int) -> CpuTime:
    """CPU time of a process and its threads so far; raises RunFailed when it is gone."""
    fields = _stat_fields(pid)
    user, system = int(fields[11]), int(fields[12])
    try:
        total = time.clock_gettime(~pid << 3 | _CLOCK_OF_ALL_THREADS)
    except OSError as error:
        raise RunFailed(f"process {pid} has ended: {error.strerror}") from error
    share = user / (user + system) if user + system else 1.0
    return CpuTime(total * share, total * (1 - share))


def tree_cpu(root: int) -> float:
    """CPU seconds of a process and of all that came of it, 10 ms fine.  Those that have ended count if they were waited
    for.

    RunFailed when it is gone.
    """
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(RunFailed):  # it has ended meanwhile
                found[int(entry.name)] = _stat_fields(int(entry.name))
    if root not in found:
        raise RunFailed(f"process {root} has ended")
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in found.items():
        children[int(fields[1])].append(pid)
    ticks, below = 0, [root]
    while below:
        pid = below.pop()
        ticks += sum(int(field) for field in found[pid][11:15])
        below += children[pid]
    return ticks / TICKS_PER_SECOND


def started_at(pid: int) -> float:
    """When the process was started, on the clock of `time.clock_gettime(time.CLOCK_BOOTTIME)`; 10 ms fine."""
    return int(_stat_fields(pid)[19]) / TICKS_PER_SECOND


def machine_busy() -> float:
    """CPU seconds that all processors together have spent working since boot (steal by other guests included)."""
    words = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) for word in words)
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_SECOND


def share_of_machine(cpu_seconds: float, seconds: float) -> float:
    """Of all processors' time within `seconds`, 0 to 1; nothing where clocks of 10 ms make it less."""
    return max(cpu_seconds, 0.0) / (seconds * (os.cpu_count() or 1))


def resident_mb(pid: int) -> float:
    """Resident memory in 10^6 bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RunFailed(f"process {pid} has no resident memory: it has ended")


def _stat_fields(pid: int) -> list[str]:
    """The fields after the command name, which may hold spaces: field 3 of proc(5) is number 0 here."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError as error:
        raise RunFailed(f"process {pid} has ended: {error.strerror}") from error
    return text.rpartition(")")[2].split()


def run(
    command: Sequence[str | Path],
    *,
    seconds_max: float,
    environment: Mapping[str, str] | None = None,
    statuses: Collection[int] = (0,),
) -> Finished:
    """Run one client to its end; raises RunFailed when it fails or takes too long (it is killed then).

    `statuses`: the exit statuses that do not mean failure.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    with subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **(environment or {})},
    ) as process:
        try:
            raw, _ = process.communicate(timeout=seconds_max)
        except BaseException as error:
            process.kill()
            process.wait()
            if isinstance(error, subprocess.TimeoutExpired):
                name = Path(str(command[0])).name
                raise RunFailed(f"{name} did not finish within {seconds_max:.0f} s") from error
            raise
    seconds = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = raw[-OUTPUT_BYTES_MAX:].decode(errors="replace")
    if process.returncode not in statuses:
        tail = " | ".join(output.strip().splitlines()[-3:])
        raise RunFailed(f"{Path(str(command[0])).name} ended with {process.returncode}: {tail}")
    cpu = CpuTime(after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime)
    return Finished(output, seconds, cpu)


@contextlib.contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program for the time of the block; its output is thrown away."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process
        finally:
            end(process, grace_seconds=END_SECONDS_MAX)


def end(process: subprocess.Popen[bytes], *, grace_seconds: float) -> None:
    """TERM, wait, then KILL: only the process that we started ourselves."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
    if process.poll() is None:
        process.kill()
    process.wait()


@contextlib.contextmanager
def on_core(pid: int, core: int) -> Iterator[None]:
    """A process gets this processor alone for the time of the block, then all of this program's again.

    RunFailed where there is no such processor.
    """
    everywhere = os.sched_getaffinity(0)
    if core not in everywhere:
        raise RunFailed(f"this machine has no processor {core} for a server or client of its own")
    _pin(pid, {core})
    try:
        yield
    finally:
        with contextlib.suppress(RunFailed):
            _pin(pid, everywhere)


def _pin(pid: int, cores: set[int]) -> None:
    """All threads; those that they start inherit it."""
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task.name), cores)
    except OSError as error:
        raise RunFailed(f"process {pid} cannot be moved to processors: {error.strerror}") from error


def use_memory(byte_count: int) -> None:
    """Touch that much memory and free it again, so that the next user of free pages gets ones the host has backed."""
    with mmap.mmap(-1, byte_count) as memory, memoryview(memory) as view:
        view[:: mmap.PAGESIZE] = bytes(len(range(0, byte_count, mmap.PAGESIZE)))


def raise_file_limit() -> None:
    """Let the servers that we start open as many files as this machine allows: 10,000 topics need it."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
