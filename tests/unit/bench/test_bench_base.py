"""The program of `--base` is another installation: it starts without this one's packages, or the bench says why not."""

from pathlib import Path

import pytest

from bench import servers
from bench.process import RunFailed


def program(tmp_path: Path, script: str) -> Path:
    path = tmp_path / "magnetar"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_base_is_started_without_the_packages_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", "src")
    servers.check_program(program(tmp_path, 'test -z "$PYTHONPATH"'))
    assert servers.elsewhere().get("PATH")


def test_base_that_does_not_start_is_refused_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"--version failed: no such package$"):
        servers.check_program(program(tmp_path, "echo first >&2; echo no such package >&2; exit 1"))
    with pytest.raises(RunFailed, match="it said nothing"):
        servers.check_program(program(tmp_path, "exit 1"))


def test_base_that_is_no_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="does not start: No such file"):
        servers.check_program(tmp_path / "none")
