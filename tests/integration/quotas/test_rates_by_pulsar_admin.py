"""Pulsar's own pulsar-admin, in one pulsar-shell, sets, shows and removes rates, of namespaces and topics."""

import json
from itertools import islice
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell

NAMESPACE, TOPIC = "public/default", "persistent://public/default/rated"
NONE = (None, "null")

pytestmark = needs_java


DISPATCH = "--msg-dispatch-rate 100 --byte-dispatch-rate 1048576 --dispatch-rate-period 2"
DISPATCHED = {
    "dispatchThrottlingRateInMsg": 100,
    "dispatchThrottlingRateInByte": 1048576,
    "relativeToPublishRate": False,
    "ratePeriodInSecond": 2,
}
SUBSCRIBE = "--subscribe-rate 3 --subscribe-rate-period 60"
SUBSCRIBED = {"subscribeThrottlingRatePerConsumer": 3, "ratePeriodInSecond": 60}


RATES = {
    "dispatch-rate": (DISPATCH, DISPATCHED),
    "subscription-dispatch-rate": (DISPATCH, DISPATCHED),
    "subscribe-rate": (SUBSCRIBE, SUBSCRIBED),
}
BY_NAME, OF_ONE = "topicPolicies {}-subscription-dispatch-rate", f"{TOPIC}-by-name"
# What each test asks, by its name: one shell asks it all.
ASKED = {
    verb: [
        f"topics create {TOPIC}-{verb}",
        f"namespaces set-{verb} {NAMESPACE} {given}",
        f"namespaces get-{verb} {NAMESPACE}",
        f"topicPolicies set-{verb} {TOPIC}-{verb} {given}",
        f"topicPolicies get-{verb} {TOPIC}-{verb}",
        f"topicPolicies remove-{verb} {TOPIC}-{verb}",
        f"topicPolicies get-{verb} {TOPIC}-{verb}",
        f"topicPolicies get-{verb} {TOPIC}-{verb} --applied",
        f"namespaces remove-{verb} {NAMESPACE}",
        f"namespaces get-{verb} {NAMESPACE}",
    ]
    for verb, (given, _) in RATES.items()
} | {
    "by name": [
        f"topics create {OF_ONE}",
        f"{BY_NAME.format('set')} {OF_ONE} -s one {DISPATCH}",
        f"{BY_NAME.format('get')} {OF_ONE} -s one",
        f"{BY_NAME.format('get')} {OF_ONE}",
        f"{BY_NAME.format('remove')} {OF_ONE} -s one",
        f"{BY_NAME.format('get')} {OF_ONE} -s one",
    ],
    "document": [
        f"namespaces set-dispatch-rate {NAMESPACE} {DISPATCH}",
        f"namespaces policies {NAMESPACE}",
        f"namespaces remove-dispatch-rate {NAMESPACE}",
    ],
}


@pytest.fixture(scope="module")
def said(server: MagnetarProcess) -> dict[str, list[Any]]:
    """What each command of a test prints: JSON, a text, or None."""
    commands = [f"admin {command}" for asked in ASKED.values() for command in asked]
    outputs = iter(run_pulsar_shell(server, commands))
    return {
        name: [
            json.loads(shown) if shown.startswith("{") else shown or None
            for shown in islice(outputs, len(asked))
        ]
        for name, asked in ASKED.items()
    }


@pytest.mark.parametrize("verb", RATES)
def test_rates(said: dict[str, list[Any]], verb: str) -> None:
    _, _, namespaces, _, topics, _, removed, applied, _, left = said[verb]
    assert namespaces == topics == applied == RATES[verb][1]
    assert removed in NONE
    assert left in NONE


def test_a_subscription_by_its_name(said: dict[str, list[Any]]) -> None:
    _, _, by_name, of_topic, _, removed = said["by name"]
    assert by_name == DISPATCHED
    assert of_topic in NONE
    assert removed in NONE


def test_a_namespaces_document_is_read(said: dict[str, list[Any]]) -> None:
    _, policies, _ = said["document"]
    assert policies["topicDispatchRate"] == policies["clusterDispatchRate"] == {"standalone": DISPATCHED}
