"""What a replicator to a service of AWS may be told, and what a request to Kinesis has."""

from typing import Any

import pytest

from magnetar.replicators.aws.settings import AwsService
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.kinesis.producer import Entry, Waiting
from magnetar.replicators.kinesis.provider import KinesisProvider
from magnetar.replicators.policies import ReplicatorPolicies

REGION = {"awsRegion": "us-west-1"}
KEYS = {"accessKey": "a", "secretKey": "hunter2"}


def check(properties: dict[str, Any], target: str = "s", credentials: dict[str, Any] | None = None) -> None:
    policies = ReplicatorPolicies("r", properties, {"orders": target}, credentials=credentials)
    KinesisProvider().validate_properties("public/default", policies)


@pytest.mark.parametrize(
    ("properties", "target"),
    [
        (REGION, "stream1"),
        ({}, "stream1:us-west-1"),
        (REGION, "copy-of-{topic}:eu-central-1"),
        ({"awsRegion": "us-gov-east-1", "awsEndpoint": "https://[::1]:4566/"}, "s"),
        ({**REGION, "awsEndpoint": "http://localhost", "messageFormat": "FULL_MESSAGE_IN_JSON"}, "s"),
        ({**REGION, "retainOrdering": "false"}, "s"),
    ],
)
def test_what_can_be_used(properties: dict[str, Any], target: str) -> None:
    check(properties, target, {**KEYS, "sessionToken": "t"})


@pytest.mark.parametrize(
    ("properties", "target", "credentials", "said"),
    [
        ({}, "s", None, "needs the property awsRegion: us-west-1"),
        ({"awsRegion": "us"}, "s", None, "awsRegion must be the name of a region"),
        ({**REGION, "awsEndpoint": "file:///etc/passwd"}, "s", None, "awsEndpoint must be http://host:port"),
        (
            {**REGION, "awsEndpoint": "http://u:hunter2@x:1"},
            "s",
            None,
            "awsEndpoint must be http://host:port",
        ),
        ({**REGION, "messageFormat": "FULL_MESSAGE_IN_FB"}, "s", None, "not 'FULL_MESSAGE_IN_FB'"),
        ({**REGION, "retainOrdering": True}, "s", None, "the text true or false"),
        ({**REGION, "awsregion": "x"}, "s", None, "did you mean awsRegion?"),
        (REGION, "a/b", None, "'a/b' cannot be a stream of Kinesis: give its name, or name:region"),
        (REGION, "s:here", None, "cannot be a stream of Kinesis"),
        (REGION, "s", {"accessKey": "a"}, "need both accessKey and secretKey"),
        (REGION, "s", {"profile": "x"}, "are accessKey, secretKey, sessionToken, each a text, not 'profile'"),
        (REGION, "s", {"accessKey": "a", "secretKey": 7}, "each a text, not 'secretKey'"),
    ],
)
def test_what_is_wrong_is_named(
    properties: dict[str, Any], target: str, credentials: dict[str, Any] | None, said: str
) -> None:
    with pytest.raises(ReplicatorConfigError) as caught:
        check(properties, target, credentials)
    assert said in str(caught.value)


def test_a_target_may_name_its_region() -> None:
    service = AwsService("Kinesis", "kinesis", "stream", {})
    policies = ReplicatorPolicies("r", REGION, {"orders": "s:eu-west-2"}, credentials=KEYS)
    found = service.target("persistent://public/default/orders", policies, {})
    assert (found.name, found.region, found.endpoint) == ("s", "eu-west-2", None)
    assert "hunter2" not in repr(found)


def waiting(*keys: str, keeps_order: bool = True, size: int = 1) -> Waiting:
    made = Waiting(keeps_order=keeps_order)
    for number, key in enumerate(keys):
        made.add(Entry(key, b"%d" % number, size))
    return made


def numbers(entries: list[Entry]) -> list[int]:
    return [int(entry.data) for entry in entries]


def test_a_request_has_one_record_of_each_key_and_failures_come_first() -> None:
    made = waiting("a", "b", "a", "c", "a", "b")
    first = made.take()
    assert numbers(first) == [0, 1, 3]
    made.put_back([first[0], first[2]])
    assert numbers(made.take()) == [0, 3, 5]
    assert numbers(made.take()) == [2]
    assert numbers(made.take()) == [4]
    assert len(made) == 0


def test_a_key_whose_record_did_not_fit_waits_with_all_that_comes_behind_it() -> None:
    made = waiting("a", "b", "c", "a", size=2 << 20)
    assert numbers(made.take()) == [0, 1]
    assert numbers(made.take()) == [2, 3]


def test_without_order_a_request_takes_what_comes() -> None:
    made = waiting("a", "b", "a", "a", keeps_order=False)
    assert numbers(made.take()) == [0, 1, 2, 3]
