"""Set-up commands of suites that run at a time."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fetch


def test_one_program_never_runs_twice_at_a_time(tmp_path: Path) -> None:
    """Each makes a folder that the other must not find, and keeps it for a moment."""
    command = ["sh", "-c", f"mkdir {tmp_path}/at-work && sleep 0.3 && rmdir {tmp_path}/at-work"]
    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(fetch.quietly, command) for _ in range(2)]:
            one.result()
