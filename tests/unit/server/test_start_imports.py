"""A start imports what a plain server needs to answer its first client, and nothing more."""

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import json, sys
from dataclasses import is_dataclass
from magnetar.base.settings import load_settings
from magnetar.server import standalone
from magnetar.server.doors import load_doors

load_doors(load_settings(environment={}))
messages = [
    one
    for name, module in sys.modules.items()
    if name.startswith("magnetar.wire.kafka.messages.")
    for one in vars(module).values()
    if isinstance(one, type)
]
print(json.dumps({"modules": list(sys.modules), "compiled": [str(one) for one in messages if is_dataclass(one)]}))
"""

# What HTTP needs comes after `ready`, on a thread; what single settings or clients need, when it is asked for.
LATER = {
    "concurrent.futures.process",
    "cramjam",
    "cryptography",
    "h11",
    "http.server",
    "jwt",
    "magnetar.admin.app",
    "magnetar.base.exposition",
    "magnetar.broker.security.oauth",
    "magnetar.broker.security.openid",
    "magnetar.broker.security.passwords",
    "magnetar.broker.security.tokens",
    "magnetar.client",
    "magnetar.pipelines",
    "magnetar.server.key_sets",
    "magnetar.server.password_file",
    "magnetar.server.pkcs12",
    "magnetar.testing",
    "magnetar.wire.kafka.messages.asking",
    "multiprocessing",
    "numba",
    "numpy",
    "passlib",
    "prometheus_client",
    "re2",
    "rich",
    "snappy",
    "starlette",
    "urllib.request",
    "urllib3",
    "uvicorn",
    "yaml",
}


@pytest.fixture(scope="module")
def started() -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    return json.loads(done.stdout)


def test_a_plain_server_imports_none_of_what_it_may_need_later(started: Any) -> None:
    assert {"magnetar.protocols.kafka.apis", "magnetar.protocols.pulsar.commands"} <= set(started["modules"])
    assert LATER & set(started["modules"]) == set()


def test_no_message_is_compiled_when_it_is_imported(started: Any) -> None:
    """`dataclasses` took a fifth of a start for them."""
    assert started["compiled"] == []
