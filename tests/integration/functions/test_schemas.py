"""Functions of records and texts with schemas, fed by pulsar-client's own classes."""

import importlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pulsar.functions.serde import PickleSerDe
from pulsar.schema import AvroSchema, JsonSchema, Record, String, StringSchema

from tests.integration.functions.test_triggers import trigger
from tests.integration.functions.worker import CODE, PATIENCE_S, Worker, client_of, deduplicate
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600)]

CLASSES = {"inputTypeClassName": "orders.Order", "outputTypeClassName": "orders.Invoice"}
WAIT_MS = int(PATIENCE_S * 1000)


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of the function."""
    monkeypatch.syspath_prepend(str(CODE))
    yield importlib.import_module("orders")
    del sys.modules["orders"]


class _Other(Record):  # type: ignore[misc]
    name = String()


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_real_pulsar_admin_declares_schemas(self, worker: Worker, orders: Any) -> None:
        inputs = json.dumps({"orders": json.dumps({"schemaType": "json"})})
        (made,) = run_pulsar_shell(
            worker.server,
            [
                "admin functions create --tenant public --namespace default --name bill"
                f" --py {CODE / 'orders.py'} --classname orders.Bill --custom-schema-inputs '{inputs}'"
                " --input-type-class-name orders.Order --output bills --schema-type avro"
                " --output-type-class-name orders.Invoice"
            ],
        )
        assert "Created successfully" in made
        worker.until_running("bill")
        _check_bills(worker, orders, JsonSchema(orders.Order), "orders", "bills")


def _check_bills(worker: Worker, orders: Any, schema: Any, inputs: str, outputs: str) -> None:
    with client_of(worker.server) as client:
        output = client.subscribe(outputs, "s", schema=AvroSchema(orders.Invoice))
        producer = client.create_producer(inputs, schema=schema)
        producer.send(orders.Order(what="pears", count=3))
        found = output.receive(WAIT_MS).value()
    assert (found.text, found.cents) == ("3 pears", 75)


def test_effectively_once_has_schemas_too(worker: Worker, orders: Any) -> None:
    deduplicate(worker.server)
    worker.create(
        "once",
        "orders.py",
        "orders.Bill",
        customSchemaInputs={"once-in": "avro"},
        output="once-out",
        outputSchemaType="avro",
        processingGuarantees="EFFECTIVELY_ONCE",
        **CLASSES,
    )
    _check_bills(worker, orders, AvroSchema(orders.Order), "once-in", "once-out")


def test_what_a_schema_cannot_take_is_an_exception_of_the_function(worker: Worker, orders: Any) -> None:
    worker.create(
        "careful",
        "orders.py",
        "orders.Bill",
        customSchemaInputs={"careful-in": "json"},
        output="careful-out",
        outputSchemaType="json",
        maxMessageRetries=1,
        deadLetterTopic="careful-dead",
        **CLASSES,
    )
    with client_of(worker.server) as client:
        output = client.subscribe("careful-out", "s", schema=JsonSchema(orders.Invoice))
        dead = client.subscribe("careful-dead", "s")
        producer = client.create_producer("careful-in", schema=JsonSchema(orders.Order))
        producer.send(orders.Order(what="nonsense", count=1))
        client.create_producer("careful-in").send(b"no JSON")
        producer.send(orders.Order(what="figs", count=2))
        assert output.receive(WAIT_MS).value().text == "2 figs"
        gone = {dead.receive(WAIT_MS).data() for _ in range(2)}
    assert b"no JSON" in gone
    status = worker.until("careful", lambda one: one["numUserExceptions"] >= 4)
    assert (status["running"], status["numSystemExceptions"]) == (True, 0)


def test_texts_and_a_trigger(worker: Worker) -> None:
    worker.create(
        "loud",
        "orders.py",
        "orders.shout",
        customSchemaInputs={"quiet": "STRING"},
        output="loud-out",
        outputSchemaType="STRING",
    )
    with client_of(worker.server) as client:
        output = client.subscribe("loud-out", "s", schema=StringSchema())
        seen = client.subscribe("quiet", "watcher")
        client.create_producer("quiet", schema=StringSchema()).send("grüß")
        assert output.receive(WAIT_MS).value() == "GRÜSS"
        assert trigger(worker, "loud", "hey") == (200, "HEY")
        # A trigger's message says its schema, as a producer's does.
        versions = [seen.receive(WAIT_MS).schema_version() for _ in range(2)]
        assert versions[0]
        assert versions[0] == versions[1]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"inputTypeClassName": "orders.Missing"}, "the module orders has no Missing"),
        ({"inputTypeClassName": "orders.Bill"}, "orders.Bill is no Record"),
    ],
)
def test_wrong_class_is_a_reason_in_the_status(worker: Worker, words: dict[str, str], sentence: str) -> None:
    worker.declare("wrong", "orders.py", className="orders.Bill", customSchemaInputs={"w": "json"}, **words)
    assert sentence in worker.until("wrong", lambda one: bool(one["error"]))["error"]
    worker.ask("wrong", "DELETE")


def test_schema_that_the_topic_does_not_take_is_a_reason_in_the_status(worker: Worker) -> None:
    with client_of(worker.server) as client:
        client.create_producer("taken", schema=StringSchema()).close()
    worker.declare(
        "late",
        "orders.py",
        className="orders.Bill",
        customSchemaInputs={"taken": "avro"},
        inputTypeClassName="orders.Order",
    )
    error = worker.until("late", lambda one: bool(one["error"]))["error"]
    assert "the function cannot subscribe to its inputs" in error
    assert "IncompatibleSchema" in error
    worker.ask("late", "DELETE")


def test_serdes_of_the_library_and_of_the_code(worker: Worker) -> None:
    worker.create(
        "pickled",
        "orders.py",
        "orders.double",
        customSerdeInputs={"pickles": "serde.PickleSerDe", "plain-pickles": "serde.IdentitySerDe"},
        output="doubled",
        outputSerdeClassName="orders.Careful",
        maxMessageRetries=1,
        deadLetterTopic="spoilt",
    )
    with client_of(worker.server) as client:
        output, dead = client.subscribe("doubled", "s"), client.subscribe("spoilt", "s")
        producer = client.create_producer("pickles")
        spoilt = PickleSerDe().serialize(["odd"])
        producer.send(spoilt)
        producer.send(b"no pickle")
        producer.send(PickleSerDe().serialize([1, "a"]))
        assert output.receive(WAIT_MS).data() == b"[1, 'a', 1, 'a']"
        client.create_producer("plain-pickles").send(b"ab")
        assert output.receive(WAIT_MS).data() == b"'abab'"
        assert {dead.receive(WAIT_MS).data() for _ in range(2)} == {spoilt, b"no pickle"}
    texts = str(worker.until("pickled", lambda one: one["numUserExceptions"] >= 4)["latestUserExceptions"])
    assert "UnpicklingError" in texts
    assert "ValueError: nothing odd" in texts


def test_schema_that_the_output_does_not_take_is_a_system_exception(worker: Worker) -> None:
    with client_of(worker.server) as client:
        client.create_producer("of-records", schema=JsonSchema(_Other)).close()
        worker.create(
            "refused-out",
            "orders.py",
            "orders.shout",
            inputs=["to-refuse"],
            output="of-records",
            outputSchemaType="string",
        )
        client.create_producer("to-refuse").send(b"a")
        status = worker.until("refused-out", lambda one: one["numSystemExceptions"] >= 2)
    assert "IncompatibleSchema" in status["latestSystemExceptions"][-1]["exceptionString"]
    assert (status["running"], status["numUserExceptions"]) == (True, 0)
