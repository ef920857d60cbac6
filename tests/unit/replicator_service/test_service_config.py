"""The file that says what the replicator service replicates: what comes of it, and what is refused, in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.replicator_service.config import Targets, read_targets, read_tokens

SECRET = "not-to-be-shown-Zk3qPv9"
PROPERTIES = {"bootstrap.servers": "kafka:9092"}


def body(**more: Any) -> dict[str, Any]:
    policies = {"replicationProperties": PROPERTIES, "topicNameMapping": {"orders": "copy"}}
    auth = more.pop("auth", None)
    return {
        "replicatorPolicies": {**policies, **more},
        **({} if auth is None else {"authParamData": auth}),
    }


def read(folder: Path, content: Any, mode: int = 0o600) -> Targets:
    file = folder / "service.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    file.chmod(mode)
    return read_targets(file, {"KAFKA_PASSWORD": SECRET})


def one(given: Any, type_name: str = "Kafka", region: str = "west") -> dict[str, Any]:
    return {"namespaces": {"public/orders": {type_name: {region: given}}}}


def test_a_target_has_its_policies_and_is_found_by_namespace_and_region(tmp_path: Path) -> None:
    auth = {"sasl.username": "u", "sasl.password": SECRET}
    found = read(tmp_path, one(body(topicNameMapping={"a": "b", ".+": "all-{topic}"}, auth=auth)))
    [(key, target)] = found.items()
    assert key == ("public/orders", "west")
    assert (target.type, target.policies.region, target.policies.credentials) == ("Kafka", "west", auth)
    assert target.policies.target_of("a") == "b"
    assert target.policies.target_of("other") == "all-other"
    assert SECRET not in repr(target)


def test_credentials_come_from_the_environment_where_the_configuration_says_so(tmp_path: Path) -> None:
    given = body(authParamStorePluginName="environment", auth={"sasl.password": "KAFKA_PASSWORD"})
    [target] = read(tmp_path, one(given), mode=0o644).values()
    assert target.policies.credentials == {"sasl.password": SECRET}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ([], "must be an object"),
        ({}, "namespaces must be an object"),
        ({"namespaces": {}}, "has no namespaces with a configuration"),
        ({"listener": {}, "namespaces": {}}, "has no 'listener': there are namespaces"),
        ({"namespaces": {"public": {}}}, "'public' must be tenant/namespace"),
        (one(body(), region="us.west"), "a region has 1 to 24 letters"),
        (one(body(), type_name="Kafca"), "did you mean Kafka?"),
        (one({"replicatorPolicies": {}}), "topicNameMapping must be an object"),
        (one(body(topicNameMapping={})), "topicNameMapping must name"),
        (one(body(topicNameMapping={"a": 1})), "topicNameMapping must name"),
        (one(body(topicNameMapping={"(": "b"})), "neither a topic's name nor a regular expression"),
        (one(body(topicNameMapping={"a": "no/topic"})), "cannot be a topic of Kafka"),
        (one(body(replicationProperties={})), "needs the property bootstrap.servers"),
        (one(body(replicationProperties={**PROPERTIES, "transactional.id": "t"})), "needs the offsets"),
        (one({**body(), "secret": SECRET}), "has no 'secret'"),
        (one(body(auth={"password": SECRET})), "credentials of a replicator to Kafka are"),
        (
            one(body(auth={"sasl.password": "NO_SUCH"}, authParamStorePluginName="environment")),
            "sasl.password",
        ),
        (
            one(body(auth={"sasl.password": SECRET}, authParamStorePluginName="vault")),
            "authParamStorePluginName",
        ),
        (
            {"namespaces": {"a/b": {"Kafka": {"r": body()}, "Kinesis": {"r": body()}}}},
            "a/b Kinesis r",
        ),
        (
            one(body(replicationProperties={"serviceUrl": "pulsar://h:1"}), type_name="Pulsar"),
            "needs the offsets of records",
        ),
        (
            one(body(replicationProperties={"awsRegion": "us-west-1"}), type_name="DynamoDB"),
            "needs the offsets of records",
        ),
    ],
)
def test_what_cannot_be_used_is_one_sentence_without_a_secret(tmp_path: Path, given: Any, why: str) -> None:
    with pytest.raises(ConfigError) as found:
        read(tmp_path, given)
    assert why in str(found.value)
    assert SECRET not in str(found.value)
    assert len(str(found.value).splitlines()) == 1


def test_a_region_is_the_name_of_one_cluster(tmp_path: Path) -> None:
    kinesis = body(replicationProperties={"awsRegion": "us-west-1"})
    types = {"Kafka": {"west": body()}, "Kinesis": {"west": kinesis}}
    with pytest.raises(ConfigError, match="another type of this namespace has this region"):
        read(tmp_path, {"namespaces": {"public/orders": types}})


@pytest.mark.parametrize("mode", [0o640, 0o604])
def test_a_file_with_credentials_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    with pytest.raises(ConfigError, match="chmod 600"):
        read(tmp_path, one(body(auth={"sasl.password": SECRET})), mode)
    assert read(tmp_path, one(body()), mode)


def test_tokens_are_lines_of_a_file_of_this_account_alone(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(b"a-token-of-32-characters-or-more\n\n  another-long-token-for-rotation \n")
    file.chmod(0o600)
    assert read_tokens(file) == (b"a-token-of-32-characters-or-more", b"another-long-token-for-rotation")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_tokens(file)


@pytest.mark.parametrize("content", [b"", b"\n \n", b"short\n", b"long-enough-to-be-one\nshort\n"])
def test_no_token_and_a_short_one_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "tokens"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match="must have tokens of at least 16 bytes"):
        read_tokens(file)
