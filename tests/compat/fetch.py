"""The suites' sources: fetched once by the registries' clients, checked by hash, kept in the work folder."""

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

COMMAND_TIMEOUT_S = 900


class SetupFailed(Exception):
    """A suite cannot be fetched or built here; the text is one sentence for the person at the terminal."""


class BrokerFailed(SetupFailed):
    """The broker under a suite has ended, or does not answer, before the suite is over; the text says how."""


class NotHere(Exception):
    """A suite needs something that this machine need not have; the text is the sentence that says what."""


def sdist(work: Path, requirement: str, file_name: str, sha256: str) -> Path:
    """The source archive of a pinned Python package."""
    arguments = ["--no-deps", "--no-binary", ":all:", "--disable-pip-version-check", "-q", "-d", str(work)]
    return _archive(
        work, file_name, sha256, [sys.executable, "-m", "pip", "download", *arguments, requirement]
    )


def npm_package(work: Path, requirement: str, file_name: str, sha256: str) -> Path:
    """The archive of a pinned npm package."""
    if not (work / file_name).exists():
        need_tools({"npm": "npm"})
    return _archive(
        work, file_name, sha256, ["npm", "pack", "--silent", "--pack-destination", str(work), requirement]
    )


def unpack(archive: Path, into: Path, member_prefix: str) -> None:
    """Extract what lies under `member_prefix` (which is cut off) into `into`, whole or not at all."""
    if into.exists():
        return
    half = into.with_name(into.name + ".half")
    shutil.rmtree(half, ignore_errors=True)
    with tarfile.open(archive) as tar:
        members = []
        for member in tar.getmembers():
            if member.name.startswith(member_prefix):
                member.name = member.name.removeprefix(member_prefix)
                members.append(member)
        tar.extractall(half, members, filter="data")
    half.rename(into)


def need_tools(packages: dict[str, str]) -> None:
    """Make sure that programs or header files exist; `packages` maps each to the Debian package that has it.

    As root the missing packages are installed.  `SetupFailed` names what is missing otherwise.
    """
    missing = sorted({package for tool, package in packages.items() if not _present(tool)})
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"installing {' '.join(missing)} ...", flush=True)
        quietly(["apt-get", "update", "-qq"])
        quietly(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing])
        missing = sorted({package for tool, package in packages.items() if not _present(tool)})
    if missing:
        raise SetupFailed(f"needs {', '.join(missing)}: install with your package manager and run again")


def quietly(command: Sequence[str], *, cwd: Path | None = None, log: Path | None = None) -> None:
    """Run a set-up command; its output goes to `log` or is shown only if it fails (`SetupFailed`)."""
    try:
        with _alone(command[0]):
            done = subprocess.run(
                command,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=COMMAND_TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        raise SetupFailed(f"`{' '.join(command)}` took longer than {COMMAND_TIMEOUT_S} s") from None
    if log is not None:
        log.write_bytes(done.stdout)
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace").strip().splitlines()[-5:]
        raise SetupFailed(f"`{' '.join(command)}` failed: {' | '.join(tail)}")


@contextlib.contextmanager
def _alone(program: str) -> Iterator[None]:
    """Wait until no other suite runs this program: apt refuses to run twice, and Maven twice may write one file."""
    with Path(shutil.which(program) or __file__).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _archive(work: Path, file_name: str, sha256: str, download: Sequence[str]) -> Path:
    archive = work / file_name
    if not archive.exists():
        print(f"fetching {file_name} ...", flush=True)
        quietly(download, cwd=work)
    if not archive.exists():
        raise SetupFailed(f"`{' '.join(download)}` did not leave {file_name}")
    found = hashlib.sha256(archive.read_bytes()).hexdigest()
    if found != sha256:
        archive.unlink()
        raise SetupFailed(f"{file_name} has sha256 {found}, pinned is {sha256}: removed it")
    return archive


def _present(tool: str) -> bool:
    return Path(tool).exists() if tool.startswith("/") else shutil.which(tool) is not None
