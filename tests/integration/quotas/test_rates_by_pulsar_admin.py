"""Pulsar's own pulsar-admin, in one pulsar-shell, sets, shows and removes rates, of namespaces and topics."""

import json
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell

NAMESPACE, TOPIC = "public/default", "persistent://public/default/rated"
NONE = (None, "null")

pytestmark = needs_java


def admin(server: MagnetarProcess, *commands: str) -> list[Any]:
    """What each prints: JSON, a text, or None."""
    outputs = run_pulsar_shell(server, [f"admin {command}" for command in commands])
    return [json.loads(shown) if shown.startswith("{") else shown or None for shown in outputs]


DISPATCH = "--msg-dispatch-rate 100 --byte-dispatch-rate 1048576 --dispatch-rate-period 2"
DISPATCHED = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 1048576,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
SUBSCRIBE = "--subscribe-rate 3 --subscribe-rate-period 60"
SUBSCRIBED = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 60}


@pytest.mark.parametrize(
    ("verb", "given", "kept"),
    [
        ("dispatch-rate", DISPATCH, DISPATCHED),
        ("subscription-dispatch-rate", DISPATCH, DISPATCHED),
        ("subscribe-rate", SUBSCRIBE, SUBSCRIBED),
    ],
)
def test_rates(server: MagnetarProcess, verb: str, given: str, kept: dict[str, Any]) -> None:
    topic = f"{TOPIC}-{verb}"
    _, _, namespaces, _, topics, _, removed, applied, _, left = admin(
        server,
        f"topics create {topic}",
        f"namespaces set-{verb} {NAMESPACE} {given}",
        f"namespaces get-{verb} {NAMESPACE}",
        f"topicPolicies set-{verb} {topic} {given}",
        f"topicPolicies get-{verb} {topic}",
        f"topicPolicies remove-{verb} {topic}",
        f"topicPolicies get-{verb} {topic}",
        f"topicPolicies get-{verb} {topic} --applied",
        f"namespaces remove-{verb} {NAMESPACE}",
        f"namespaces get-{verb} {NAMESPACE}",
    )
    assert namespaces == topics == applied == kept
    assert removed in NONE
    assert left in NONE


def test_a_subscription_by_its_name(server: MagnetarProcess) -> None:
    topic, verb = f"{TOPIC}-by-name", "subscription-dispatch-rate"
    _, _, by_name, of_topic, _, removed = admin(
        server,
        f"topics create {topic}",
        f"topicPolicies set-{verb} {topic} -s one {DISPATCH}",
        f"topicPolicies get-{verb} {topic} -s one",
        f"topicPolicies get-{verb} {topic}",
        f"topicPolicies remove-{verb} {topic} -s one",
        f"topicPolicies get-{verb} {topic} -s one",
    )
    assert by_name == DISPATCHED
    assert of_topic in NONE
    assert removed in NONE


def test_a_namespaces_document_is_read(server: MagnetarProcess) -> None:
    _, policies, _ = admin(
        server,
        f"namespaces set-dispatch-rate {NAMESPACE} {DISPATCH}",
        f"namespaces policies {NAMESPACE}",
        f"namespaces remove-dispatch-rate {NAMESPACE}",
    )
    assert policies["topicDispatchRate"] == policies["clusterDispatchRate"] == {"standalone": DISPATCHED}
