"""What the machine (or the container around this process) allows."""

import os
import resource
from pathlib import Path
from typing import Final

# Where Linux says how much memory this process's control group may have: version 2, then version 1.
_CGROUP_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_bytes(cgroup_limits: tuple[Path, ...] = _CGROUP_LIMITS) -> int:
    """The memory that this process may use: the machine's, or its container's when that is less."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in cgroup_limits:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():  # "max" means no limit; version 1 writes a number beyond any machine instead
            total = min(total, int(text))
    return total


def raise_open_files_limit() -> int:
    """Lift this process's limit of open files to what it may have, and return that.

    Each connection and each open segment takes one; the usual soft limit of 1,024 is for programs that use
    `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
