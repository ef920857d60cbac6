"""A pytest of its own, for tests of what tests/conftest.py adds to pytest."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def run_tests(folder: Path, workers: str, dist: str = "loadgroup") -> str:
    """What it prints of the tests in a folder, which all have to pass, in the order of their names."""
    named = ["--rootdir", str(folder), str(folder)]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            workers,
            "--dist",
            dist,
            "-p",
            "no:randomly",
            *named,
        ],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        | {"PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
