"""What the doors get of the broker: use cases, handles, errors and values, and not the broker's own objects."""

import dataclasses
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.broker.usecases import cases
from magnetar.broker.usecases.cases import UseCases

ROOMS = "magnetar.broker."
# Modules of a room that hold what it gives away; all else is its own.
VALUES = ("model", "errors")


def classes_in(annotation: Any) -> Iterator[type]:
    """All classes that an annotation names."""
    if isinstance(annotation, type):
        yield annotation
    for part in typing.get_args(annotation):
        for one in part if isinstance(part, list) else [part]:
            yield from classes_in(one)


def is_own(one: type) -> bool:
    """Whether it is an object of the broker's that no door may hold."""
    if not one.__module__.startswith(ROOMS):
        return False
    room, _, module = one.__module__.removeprefix(ROOMS).partition(".")
    return room != "usecases" and module.rpartition(".")[2] not in VALUES


def handed_out() -> Iterator[tuple[str, Any]]:
    """What there is in the use cases, and what each of their methods returns."""
    hints = typing.get_type_hints(UseCases, vars(cases))
    for field in dataclasses.fields(UseCases):
        kind = hints[field.name]
        yield field.name, kind
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                yield f"{field.name}.{name}", typing.get_type_hints(method).get("return")


def test_no_use_case_hands_out_an_object_of_the_brokers() -> None:
    found = [
        f"{place}: {one.__module__}.{one.__name__}"
        for place, annotation in handed_out()
        for one in classes_in(annotation)
        if is_own(one)
    ]
    assert not found


@pytest.mark.parametrize("place", ["kafka_names", "pulsar_topics.to_delete", "history.locate"])
def test_what_is_handed_out_is_looked_at(place: str) -> None:
    assert any(found == place for found, _ in handed_out())
