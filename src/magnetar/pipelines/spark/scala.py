"""Spark's own objects, as py4j represents them."""

from typing import Any, TypeAlias

JavaObject: TypeAlias = Any  # py4j's object: it has the methods of the Java object


def items(sequence: JavaObject) -> list[Any]:
    """The items of a Scala `Seq`."""
    return [sequence.apply(index) for index in range(sequence.size())]
