"""Our bytes are the bytes that two others write: kio (generated from Kafka's schema) and kafka-python.

Each oracle reads what we wrote and writes it again; the result must be equal byte for byte.  Its field names
must be ours, in our order: equal bytes alone would not notice two fields of one size in each other's place.
"""

import dataclasses
import importlib
import io
import pkgutil
import random
import typing
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import kio.schema
import pytest
from kio.serial import entity_reader, entity_writer

from magnetar.wire.kafka.schema.model import Field, Primitive, Struct
from tests.fuzz.kafka_instances import Case, messages, named, snake

KIO_SCHEMA = Path(kio.schema.__file__).parent
MESSAGES = messages()
INSTANCES = 12


def kio_module(case: Case) -> tuple[str, ...]:
    name = case.name if case.kind == "data" else case.name.removesuffix(case.kind.capitalize())
    return snake(name), f"v{case.version}", case.kind


def kio_has(case: Case) -> bool:
    """Whether there is such a class; to import hundreds of modules for that took a second of each worker."""
    return KIO_SCHEMA.joinpath(*kio_module(case)).with_suffix(".py").exists()


def kio_class(case: Case) -> Any:
    return getattr(importlib.import_module(".".join(("kio.schema", *kio_module(case)))), case.name)


@cache
def kafka_python_classes() -> dict[str, Any]:
    found: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it reads its resources in an old way
        protocol = importlib.import_module("kafka.protocol")
        for info in pkgutil.walk_packages(protocol.__path__, "kafka.protocol."):
            if ".old" not in info.name and "generate" not in info.name:
                module = importlib.import_module(info.name)
                found |= {name: value for name, value in vars(module).items() if isinstance(value, type)}
    return found


def kafka_python_class(case: Case) -> Any:
    found = kafka_python_classes().get(case.name) if case.kind != "data" else None
    if found is None or not found.min_version <= case.version <= found.max_version:
        return None
    return found[case.version]


def instances(case: Case) -> list[Any]:
    rng = random.Random(str(case))
    return [case.instance(rng) for _ in range(INSTANCES)]


def test_every_message_in_every_version_has_an_oracle() -> None:
    cases = [case for versions in MESSAGES.values() for case in versions]
    assert [str(case) for case in cases if not kio_has(case) and kafka_python_class(case) is None] == []


# A test for each message and not for each version: of thousands of tests, pytest's share is most of what they cost.
@pytest.mark.parametrize("name", MESSAGES)
def test_we_read_what_we_write_and_oracles_read_it_and_write_the_same(name: str) -> None:
    for case in MESSAGES[name]:
        with named(case):
            written = [(message, case.encode(message)) for message in instances(case)]
            for message, data in written:
                assert case.decode(data) == message
            if kio_has(case):
                kio_reads_and_writes_the_same(case, [data for _, data in written])
            if kafka_python_class(case) is not None:
                kafka_python_reads_and_writes_the_same(case, [message for message, _ in written])


def kio_reads_and_writes_the_same(case: Case, written: list[bytes]) -> None:
    entity = kio_class(case)
    read, write = entity_reader(entity), entity_writer(entity)
    for data in written:
        theirs, size = read(memoryview(data), 0)
        assert size == len(data)
        out = io.BytesIO()
        write(out, theirs)
        assert out.getvalue() == data


def kafka_python_reads_and_writes_the_same(case: Case, messages: list[Any]) -> None:
    entity = kafka_python_class(case)
    for message in messages:
        if case.name == "ApiVersionsResponse":
            message.error_code = 0  # with UNSUPPORTED_VERSION the oracle reads v0, as a client must (KIP-511)
        data = case.encode(message)
        theirs = entity.decode(data)
        if case.name == "DeleteTopicsRequest":
            theirs._header = None  # its own encode() looks for it
        assert bytes(theirs.encode()) == data


def plain(name: str) -> str:
    """A field name without what the implementations spell differently."""
    name = name.replace("_", "").lower()
    return name.removesuffix("ms")  # kio makes durations of milliseconds


def kio_layout(entity: Any) -> list[tuple[str, Any]]:
    hints = typing.get_type_hints(entity)
    layout = []
    for field in dataclasses.fields(entity):
        nested = [
            part
            for part in (hints[field.name], *typing.get_args(hints[field.name]))
            for part in (part, *typing.get_args(part))
            if isinstance(part, type) and dataclasses.is_dataclass(part)
        ]
        layout.append((plain(field.name), kio_layout(nested[0]) if nested else None))
    return layout


def our_layout(fields: tuple[Field, ...], version: int) -> list[tuple[str, Any]]:
    layout = []
    for field in fields:
        if version in field.versions:
            inner = field.type[0] if isinstance(field.type, list) else field.type
            assert isinstance(inner, Primitive | Struct)
            layout.append(
                (plain(field.name), our_layout(inner.fields, version) if isinstance(inner, Struct) else None)
            )
    return layout


@pytest.mark.parametrize("name", MESSAGES)
def test_fields_have_the_names_and_the_order_of_the_protocol(name: str) -> None:
    for case in filter(kio_has, MESSAGES[name]):
        with named(case):
            assert our_layout(case.fields, case.version) == kio_layout(kio_class(case))
