"""Schemas over HTTP: statuses as Apache Pulsar 4.0.8 gave them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from magnetar.broker.broker import Broker

from .conversation import ANY, play

MakeBroker = Callable[[], Broker]
S = "/schemas/public/default/t"


def avro(*fields: str) -> dict[str, Any]:
    listed = [{"name": name, "type": "int"} for name in fields]
    definition = json.dumps({"type": "record", "name": "R", "fields": listed})
    return {"type": "AVRO", "schema": definition, "properties": {"k": "v"}}


STRING = {"type": "STRING", "schema": "", "properties": {}}


def test_schemas_are_added_shown_and_deleted(make_broker: MakeBroker) -> None:
    shown = {"version": 0, "type": "AVRO", "data": avro("a")["schema"], "properties": {"k": "v"}}
    play(
        make_broker,
        [
            ("GET", f"{S}/schema", None, 404, "Schema not found"),
            ("GET", f"{S}/schemas", None, 200, {"getSchemaResponses": []}),
            ("POST", f"{S}/schema", avro("a"), 200, {"version": {"version": 0}}),
            ("POST", f"{S}/schema", avro("a"), 200, {"version": {"version": 0}}),
            ("GET", f"{S}/schema", None, 200, shown),
            ("GET", f"{S}-partition-1/schema", None, 200, shown),
            ("GET", f"{S}/schema/0", None, 200, shown),
            ("GET", f"{S}/schema/7", None, 404, "Schema not found"),
            ("POST", f"{S}/schema", avro("b"), 409, ANY),
            (
                "POST",
                f"{S}/schema",
                STRING,
                409,
                "Incompatible schema: exists schema type AVRO, new schema type STRING",
            ),
            ("POST", f"{S}/compatibility", avro("a"), 202, {"compatibility": True}),
            (
                "POST",
                f"{S}/compatibility",
                avro("b"),
                202,
                {"schemaCompatibilityStrategy": "FULL", "compatibility": False},
            ),
            ("POST", f"{S}/version", avro("a"), 200, {"version": 0}),
            ("POST", f"{S}/version", avro("z"), 200, {"version": -1}),
            ("DELETE", f"{S}/schema", None, 200, {"version": 1}),
            ("GET", f"{S}/schema", None, 404, "Schema not found"),
            ("POST", f"{S}/schema", STRING, 200, {"version": {"version": 2}}),
            ("DELETE", f"{S}/schema?force=true", None, 200, {"version": -1}),
            ("POST", f"{S}/schema", STRING, 200, {"version": {"version": 0}}),
            ("POST", "/schemas/public/nope/t/schema", STRING, 404, "Namespace does not exist"),
        ],
    )


@pytest.mark.parametrize(
    "body",
    [
        {"type": "NOPE", "schema": ""},
        {"schema": ""},
        {"type": "AVRO", "schema": "{"},
        {"type": "AVRO", "schema": 5},
        {"type": "STRING", "properties": {"a": 5}},
        {"type": "KEY_VALUE", "schema": "{}"},
        {"type": "KEY_VALUE", "schema": "["},
        {"type": "AUTO_CONSUME"},
    ],
    ids=json.dumps,
)
def test_what_is_no_schema_is_refused(make_broker: MakeBroker, body: Any) -> None:
    play(make_broker, [("POST", f"{S}/schema", body, 422, ANY), ("GET", f"{S}/schema", None, 404, ANY)])


@pytest.mark.parametrize("size", [1, 20_000])
def test_a_key_value_schema_is_shown_as_it_was_written(make_broker: MakeBroker, size: int) -> None:
    key = {"type": "record", "name": "K", "fields": [], "doc": "x" * size}
    properties = {"key.schema.type": "AVRO", "value.schema.type": "STRING", "kv.encoding.type": "INLINE"}
    body = {
        "type": "KEY_VALUE",
        "schema": json.dumps({"key": key, "value": ""}),
        "properties": properties,
    }
    data = json.dumps({"key": key, "value": ""}, separators=(",", ":"))
    play(
        make_broker,
        [
            ("POST", f"{S}/schema", body, 200, ANY),
            ("GET", f"{S}/schema", None, 200, {"type": "KEY_VALUE", "data": data, "properties": properties}),
        ],
    )


def test_an_administrator_adds_what_clients_may_not(make_broker: MakeBroker) -> None:
    play(
        make_broker,
        [
            ("POST", "/namespaces/public/default/isAllowAutoUpdateSchema", False, 204, None),
            ("POST", f"{S}/schema", avro("a"), 200, {"version": {"version": 0}}),
        ],
    )


def test_a_deleted_topic_leaves_no_schema(make_broker: MakeBroker) -> None:
    topic = "/persistent/public/default/t"
    play(
        make_broker,
        [
            ("PUT", topic, None, 204, None),
            ("POST", f"{S}/schema", avro("a"), 200, ANY),
            ("DELETE", topic, None, 204, None),
            ("GET", f"{S}/schema", None, 404, "Schema not found"),
        ],
    )
