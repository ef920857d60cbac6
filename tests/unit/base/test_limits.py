import os
import resource
from pathlib import Path

import pytest

from magnetar.base.limits import memory_bytes, raise_open_files_limit

MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("max\n", MACHINE), ("1000000\n", 1_000_000), ("9223372036854771712\n", MACHINE), ("", MACHINE)],
)
def test_a_containers_limit_counts_when_it_is_less_than_the_machines(
    tmp_path: Path, text: str, expected: int
) -> None:
    limit = tmp_path / "memory.max"
    limit.write_text(text)
    assert memory_bytes((tmp_path / "missing", limit)) == expected


def test_the_limit_of_open_files_is_lifted_to_what_is_allowed() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        assert raise_open_files_limit() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
