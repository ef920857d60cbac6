"""Small disks of their own, which can be filled up and made to hang."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 1 << 20
DISK_BYTES = 384 * MIB


def run(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def small_disk(kind: str, tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, tmpfs or ext4; the test is skipped where none can be had."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    if kind == "tmpfs":
        mounted = run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place))
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        mounted = run("mkfs.ext4", "-q", str(image)) and run("mount", "-o", "loop", str(image), str(place))
    if not mounted:
        pytest.skip(f"this machine does not let us mount {kind}")
    try:
        yield place
    finally:
        assert run("umount", str(place))


@contextmanager
def frozen(place: Path) -> Iterator[None]:
    """Writes to the disk do not return as long as the block."""
    if not run("fsfreeze", "--freeze", str(place)):
        pytest.skip("this machine does not let us freeze a disk")
    try:
        yield
    finally:
        assert run("fsfreeze", "--unfreeze", str(place))


def fill(place: Path) -> Path:
    """Take whatever space is left."""
    ballast = place / "ballast"
    with ballast.open("ab") as file:
        size = MIB
        while size >= 4096:
            try:
                os.write(file.fileno(), bytes(size))
            except OSError:
                size //= 2
    return ballast
