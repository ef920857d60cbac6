"""What the doors get of the broker: use cases, handles, errors and values, and not the broker's own objects."""

import inspect
import typing
from collections.abc import Iterator
from enum import Enum
from typing import Any

import pytest

from magnetar.broker.usecases.cases import UseCases

ROOMS = "magnetar.broker."
BELOW = ("magnetar.ledger.", "magnetar.storage.", "magnetar.metadata.")
# Modules of a room, or below the broker, that hold what it gives away; all else is its own.
VALUES = ("model", "errors", "entry")


def classes_in(annotation: Any) -> Iterator[type]:
    """All classes that an annotation names."""
    if isinstance(annotation, type):
        yield annotation
    for part in typing.get_args(annotation):
        for one in part if isinstance(part, list) else [part]:
            yield from classes_in(one)


def is_own(one: type) -> bool:
    """Whether it is an object of the broker's, or of what is below it, that no door may hold."""
    if not one.__module__.startswith((ROOMS, *BELOW)):
        return False
    if issubclass(one, tuple | Enum):  # a value wherever it is: no door can change it
        return False
    room, _, module = one.__module__.removeprefix(ROOMS).partition(".")
    return room != "usecases" and module.rpartition(".")[2] not in VALUES


def offered(kind: type) -> Iterator[tuple[str, Any]]:
    """The public fields of a class, and what its public methods and properties return."""
    for name, annotation in typing.get_type_hints(kind).items():
        if not name.startswith("_"):
            yield name, annotation
    for name, member in inspect.getmembers(kind):
        function = member.fget if isinstance(member, property) else member
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, typing.get_type_hints(function).get("return")


def handed_out() -> Iterator[tuple[str, Any]]:
    """What a door finds in the use cases, and in what they return, and so on: as `Class.name`, with the annotation."""
    todo: list[type] = [UseCases]
    known: set[type] = {UseCases}
    while todo:
        kind = todo.pop()
        for name, annotation in offered(kind):
            yield f"{kind.__name__}.{name}", annotation
            new = {one for one in classes_in(annotation) if one.__module__.startswith(ROOMS)}
            todo += sorted(new - known, key=lambda one: one.__qualname__)
            known |= new


def test_no_use_case_hands_out_an_object_of_the_brokers() -> None:
    found = [
        f"{place}: {one.__module__}.{one.__name__}"
        for place, annotation in handed_out()
        for one in classes_in(annotation)
        if is_own(one)
    ]
    assert not found


@pytest.mark.parametrize(
    "place",
    [
        "UseCases.kafka_names",
        "PulsarTopicCases.to_delete",
        "HistoryCases.locate",
        "OpenedConsumer.figures",
        "ConsumerFigures.spec",
        "ReadablePartition.transactions",
        "CommittedTopic.offsets",
        "InternalStatistics.compacted",
    ],
)
def test_what_is_handed_out_is_looked_at(place: str) -> None:
    assert any(found == place for found, _ in handed_out())
