"""Pulsar's own pulsar-admin sets, shows and removes rates, of namespaces and topics."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import PEERS, needs_java, run

NAMESPACE, TOPIC = "public/default", "persistent://public/default/rated"

pytestmark = needs_java


@pytest.fixture(scope="module")
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess() as one:
        yield one
        assert "Traceback" not in one.log


def admin(server: MagnetarProcess, *words: str) -> Any:
    """What it prints: JSON, a text, or None."""
    shown = run(
        [str(PEERS / "pulsar"), "admin", *words], environment={"PULSAR_ADMIN_URL": server.http_url}
    ).strip()
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
