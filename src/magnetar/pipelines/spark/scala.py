"""Spark's own objects, as py4j shows them."""

from typing import Any, TypeAlias

JavaObject: TypeAlias = Any  # py4j's: has the methods of whatever it stands for


def items(sequence: JavaObject) -> list[Any]:
    """What a Scala `Seq` holds."""
    return [sequence.apply(index) for index in range(sequence.size())]
