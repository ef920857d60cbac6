"""Pulsar's own pulsar-admin sets, shows and removes rates, of namespaces and topics."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess

PEERS = Path(os.environ.get("MAGNETAR_PEERS") or Path(__file__).resolve().parents[4] / "shared" / "peers")
TOOL_S = 300.0  # two seconds on an idle machine
NAMESPACE, TOPIC = "public/default", "persistent://public/default/rated"

pytestmark = [
    pytest.mark.clients,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(
        not PEERS.exists() or shutil.which("java") is None,
        reason="needs Java and the script that fetches Pulsar's tools (MAGNETAR_PEERS)",
    ),
]


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one
        assert "Traceback" not in one.log


def admin(server: MagnetarProcess, *words: str) -> Any:
    """What it prints: JSON, a text, or None."""
    done = subprocess.run(
        [str(PEERS / "pulsar"), "admin", *words],
        capture_output=True,
        text=True,
        timeout=TOOL_S,
        check=False,
        env={**os.environ, "PULSAR_ADMIN_URL": server.http_url},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = done.stdout.strip()
    return json.loads(shown) if shown.startswith("{") else shown or None


DISPATCH = ("--msg-dispatch-rate", "100", "--byte-dispatch-rate", "1048576", "--dispatch-rate-period", "2")
DISPATCHED = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 1048576,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
SUBSCRIBE = ("--subscribe-rate", "3", "--subscribe-rate-period", "60")
SUBSCRIBED = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 60}


@pytest.mark.parametrize(
    ("verb", "given", "kept"),
    [
        ("dispatch-rate", DISPATCH, DISPATCHED),
        ("subscription-dispatch-rate", DISPATCH, DISPATCHED),
        ("subscribe-rate", SUBSCRIBE, SUBSCRIBED),
    ],
)
def test_rates(server: MagnetarProcess, verb: str, given: tuple[str, ...], kept: dict[str, Any]) -> None:
    topic = f"{TOPIC}-{verb}"
    admin(server, "topics", "create", topic)
    for noun, name in (("namespaces", NAMESPACE), ("topicPolicies", topic)):
        admin(server, noun, f"set-{verb}", name, *given)
        assert admin(server, noun, f"get-{verb}", name) == kept
    admin(server, "topicPolicies", f"remove-{verb}", topic)
    assert admin(server, "topicPolicies", f"get-{verb}", topic) in (None, "null")
    assert admin(server, "topicPolicies", f"get-{verb}", topic, "--applied") == kept
    admin(server, "namespaces", f"remove-{verb}", NAMESPACE)
    assert admin(server, "namespaces", f"get-{verb}", NAMESPACE) in (None, "null")


def test_a_subscription_by_its_name(server: MagnetarProcess) -> None:
    topic = f"{TOPIC}-by-name"
    admin(server, "topics", "create", topic)
    verb = "subscription-dispatch-rate"
    admin(server, "topicPolicies", f"set-{verb}", topic, "-s", "one", *DISPATCH)
    assert admin(server, "topicPolicies", f"get-{verb}", topic, "-s", "one") == DISPATCHED
    assert admin(server, "topicPolicies", f"get-{verb}", topic) in (None, "null")
    admin(server, "topicPolicies", f"remove-{verb}", topic, "-s", "one")
    assert admin(server, "topicPolicies", f"get-{verb}", topic, "-s", "one") in (None, "null")


def test_a_namespaces_document_is_read(server: MagnetarProcess) -> None:
    admin(server, "namespaces", "set-dispatch-rate", NAMESPACE, *DISPATCH)
    policies = admin(server, "namespaces", "policies", NAMESPACE)
    assert policies["topicDispatchRate"] == policies["clusterDispatchRate"] == {"standalone": DISPATCHED}
    admin(server, "namespaces", "remove-dispatch-rate", NAMESPACE)
