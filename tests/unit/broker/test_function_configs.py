"""What the configuration of a function may say: what is kept is true, and the rest is refused by name."""

from typing import Any

import pytest

from magnetar.broker.jobs.errors import InvalidFunction
from magnetar.broker.jobs.function_configs import UNSERVED, checked, merged

CONFIG = {"className": "f.process", "inputs": ["in"]}


def kept(**more: Any) -> dict[str, Any]:
    return checked({**CONFIG, **more}, "public", "default", "f")


def test_what_is_not_said_has_its_default_and_inputs_have_one_form() -> None:
    found = kept(
        topicsPattern="persistent://public/default/a.*", customSerdeInputs={"b": "serde.PickleSerDe"}
    )
    assert found["inputSpecs"] == {
        "persistent://public/default/in": {"isRegexPattern": False},
        "persistent://public/default/a.*": {"isRegexPattern": True},
        "persistent://public/default/b": {"isRegexPattern": False, "serdeClassName": "serde.PickleSerDe"},
    }
    assert (found["parallelism"], found["processingGuarantees"], found["runtime"]) == (
        1,
        "ATLEAST_ONCE",
        "PYTHON",
    )
    assert "inputs" not in found


def test_schemas_of_inputs_are_said_in_three_ways() -> None:
    found = kept(
        inputSpecs={"a": {"schemaType": "avro"}},
        customSchemaInputs={"b": "JSON", "c": '{"schemaType": "string", "receiverQueueSize": 5}'},
        inputTypeClassName="f.R",
    )["inputSpecs"]
    root = "persistent://public/default/"
    assert {name.removeprefix(root): spec.get("schemaType") for name, spec in found.items()} == {
        "in": None,
        "a": "avro",
        "b": "JSON",
        "c": "string",
    }
    assert found[f"{root}c"]["receiverQueueSize"] == 5


def test_what_is_kept_says_what_a_deletion_does() -> None:
    assert kept()["cleanupSubscription"] is True  # Pulsar's default
    assert kept(cleanupSubscription=False)["cleanupSubscription"] is False


@pytest.mark.parametrize("word", UNSERVED)
def test_what_magnetar_does_not_do_is_refused_by_name(word: str) -> None:
    with pytest.raises(InvalidFunction, match=r"not supported by Magnetar"):
        kept(**{word: "x"})


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"skipToLatest": True}, "skipToLatest other than false"),
        ({"maxPendingAsyncRequests": 7}, "maxPendingAsyncRequests other than 1000"),
        ({"processingGuarantees": "EFFECTIVELY_ONCE", "parallelism": 2}, "parallelism above 1"),
        ({"processingGuarantees": "EFFECTIVELY_ONCE", "autoAck": False}, "acknowledges by itself"),
        ({"processingGuarantees": "EFFECTIVELY_ONCE", "retainKeyOrdering": True}, "order of all messages"),
        (
            {"processingGuarantees": "EFFECTIVELY_ONCE", "output": "non-persistent://public/default/out"},
            "must be persistent",
        ),
        ({"processingGuarantees": "ONCE"}, "guarantee ONCE"),
        ({"runtime": "JAVA"}, "JAVA"),
        (
            {"runtime": "THREAD"},
            "The runtime thread: not supported by Magnetar, which runs each instance in a process",
        ),
        ({"runtime": "process"}, "runtime is the language, PYTHON"),
        ({"runtimeFlags": "-X dev"}, "Flags of a function's runtime"),
        ({"customRuntimeOptions": '{"runtime": "thread"}'}, "Options of a custom runtime"),
        ({"resources": {"cpu": 2.0}}, "cpu of a function's resources"),
        ({"resources": {"ram": 1}}, "memory"),
        ({"wrong": 1}, "no word 'wrong'"),
        ({"tenant": "other"}, "tenant"),
        ({"output": "in"}, "also being used as an input"),
        ({"parallelism": 0}, "positive"),
        ({"parallelism": 17}, "at most 16"),
        ({"autoAck": "yes"}, "autoAck"),
        ({"timeoutMs": -1}, "timeoutMs"),
        ({"deadLetterTopic": "d"}, "max retries"),
        ({"maxMessageRetries": 0}, "at least 1"),
        ({"retainOrdering": True, "retainKeyOrdering": True}, "Only one"),
        ({"className": "1x"}, "no name of a class"),
        ({"inputs": "in"}, "must be a list"),
        ({"inputs": []}, "No input"),
        ({"inputSpecs": {"b": {"schemaType": "avro"}}}, "needs inputTypeClassName"),
        ({"inputSpecs": {"b": {"schemaType": "protobuf"}}}, "protobuf of a function: not supported"),
        ({"inputSpecs": {"b": {"schemaProperties": {"a": "b"}}}}, "schemaProperties"),
        ({"customSchemaInputs": {"b": "{"}}, "no JSON"),
        ({"customSchemaInputs": {"b": '{"schemaType": "\\ud800"}'}}, "no JSON"),
        ({"customSchemaInputs": {"b": '{"schemaType": NaN}'}}, "no JSON"),
        ({"customSchemaInputs": {"b": {"schemaType": "json"}}}, "not supported"),
        ({"customSchemaInputs": ["b"]}, "objects"),
        ({"customSchemaInputs": {"b": "JSON"}}, "json or avro of a function needs inputTypeClassName"),
        ({"customSchemaInputs": {"b": "string"}, "inputTypeClassName": "f.R"}, "needs a schema json or avro"),
        ({"inputTypeClassName": "1x"}, "no name of a class"),
        (
            {"inputSpecs": {"b": {"schemaType": "string", "serdeClassName": "f.S"}}},
            "Only one of serdeClassName",
        ),
        ({"output": "o", "outputSchemaType": "avro"}, "needs outputTypeClassName"),
        ({"output": "o", "outputTypeClassName": "f.R"}, "needs a schema json or avro"),
        ({"outputSchemaType": "string"}, "needs an output"),
        (
            {"output": "o", "outputSchemaType": "string", "outputSerdeClassName": "f.S"},
            "Only one of outputSerdeClassName",
        ),
        ({"userConfig": {"k": "x" * 70_000}}, "more than"),
    ],
)
def test_what_cannot_be_is_one_sentence(more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidFunction, match=sentence) as refused:
        kept(**more)
    assert "\n" not in str(refused.value)


def test_an_update_changes_what_it_says_alone() -> None:
    before = kept(userConfig={"a": 1}, parallelism=2)
    after = checked(merged(before, {"parallelism": 3, "output": None}), "public", "default", "f")
    assert after == {**before, "parallelism": 3}
