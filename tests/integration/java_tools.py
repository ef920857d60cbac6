"""Kafka's and Pulsar's own tools, which need Java and the scripts that fetch them."""

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

PEERS = Path(os.environ.get("MAGNETAR_PEERS") or Path(__file__).resolve().parents[3] / "shared" / "peers")
TOOL_S = 300.0  # two seconds on an idle machine

needs_java = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not PEERS.exists() or shutil.which("java") is None,
        reason="needs Java and the scripts that fetch Kafka's and Pulsar's tools (MAGNETAR_PEERS)",
    ),
]


def run(
    command: list[str],
    stdin: str = "",
    *,
    code: int = 0,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """What a tool prints, which ends with `code`; where that is none of success, its errors as well."""
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
        env={**os.environ, "KAFKA_HEAP": "128m", **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stdout + done.stderr
