"""Where and with what a run was made: processor, memory, disk, versions, commit."""

import contextlib
import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path

from bench import client, pulsar_server, servers

# What the peers' scripts start.
PEER_VERSION = os.environ.get("KAFKA_VERSION", "4.3.1")
PULSAR_VERSION = os.environ.get("PULSAR_VERSION", "4.0.8")
REST_SECONDS = 1.0
REST_SECONDS_MAX = 15.0


def describe(scratch: Path) -> dict[str, object]:
    """`scratch` is where the servers keep their data."""
    return {
        "processor": _first(Path("/proc/cpuinfo"), "model name"),
        "processors": os.cpu_count(),
        "memory_bytes": int(_first(Path("/proc/meminfo"), "MemTotal").split()[0]) * 1024,
        "kernel": platform.release(),
        "file_system": _file_system(scratch),
        "disk_free_bytes": shutil.disk_usage(scratch).free,
        "load_average_before": os.getloadavg()[0],
    }


def rest(folder: Path) -> None:
    """Wait until the disk under `folder` has nothing left to do from what ran before, at most 15 seconds.

    Dirty pages of one server are otherwise written, and the blocks of its deleted files discarded, while the other
    is measured; one of the two waits for the disk before it acknowledges, so the noise would not be even.
    """
    os.sync()
    give_up_at = time.monotonic() + REST_SECONDS_MAX
    before = None
    while (now := disk_activity(folder)) != before and time.monotonic() < give_up_at:
        before = now
        time.sleep(REST_SECONDS)


def disk_activity(folder: Path) -> list[str]:
    """The counters of the device under `folder` that move while it works; empty where the system has none."""
    device = folder.stat().st_dev
    name = [str(os.major(device)), str(os.minor(device))]
    with contextlib.suppress(OSError):
        for line in Path("/proc/diskstats").read_text().splitlines():
            if (fields := line.split())[:2] == name:
                return fields[3:]
    return []


def versions(*, with_kafka: bool, with_pulsar: bool) -> dict[str, str]:
    found = {"python": platform.python_version(), "librdkafka (load)": client.LIBRDKAFKA_VERSION}
    for package in ("magnetar", "uvloop", "confluent-kafka"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    if with_kafka:
        found[servers.KAFKA] = PEER_VERSION
    if with_pulsar:
        found[pulsar_server.PULSAR] = PULSAR_VERSION
    return found


def commit(repository: Path) -> str:
    """Short commit id, with "+changes" where the work tree differs from it; "unknown" without git."""
    try:
        name = _git(repository, "rev-parse", "--short", "HEAD")
        return name + ("+changes" if _git(repository, "status", "--porcelain") else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _first(path: Path, key: str) -> str:
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return "0 unknown"


def _file_system(path: Path) -> str:
    """Type of the mount that holds `path`: direct I/O depends on it."""
    best, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _device, mount, type_, *_ = line.split()
            below = mount == "/" or path.resolve().is_relative_to(mount)
            if below and len(mount) >= len(best):
                best, kind = mount, type_
    return kind
