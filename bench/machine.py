"""Where and with what a run was made: processor, memory, disk, versions, commit."""

import contextlib
import os
import platform
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from bench import client, pulsar_server, servers

# What the peers' scripts start.
PEER_VERSION = os.environ.get("KAFKA_VERSION", "4.3.1")
PULSAR_VERSION = os.environ.get("PULSAR_VERSION", "4.0.8")


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
