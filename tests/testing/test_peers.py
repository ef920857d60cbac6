"""What several tests ask for at once is fetched by one of them at a time."""

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
ASK = "from tests.peers import installed; print(installed('kafka'))"
# As the scripts of the peers: it makes a file, works with it and removes it, unless all is there.
SCRIPT = """#!/bin/sh
cd "$(dirname "$0")"
test -f done && exit 0
set -e
mkdir archive
sleep 0.3
rmdir archive
touch done
"""


def test_processes_that_ask_at_once_wait_for_each_other(tmp_path: Path) -> None:
    script = tmp_path / "kafka"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    asking = [
        subprocess.Popen(
            [sys.executable, "-c", ASK],
            cwd=REPOSITORY,
            env={"MAGNETAR_PEERS": str(tmp_path), "PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in asking:
        said, errors = process.communicate(timeout=60)
        assert (process.returncode, said) == (0, f"{script}\n"), errors
