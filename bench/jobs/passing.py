"""A function of Pulsar's Python API that returns what it gets."""

from typing import Any

from pulsar import Function


class Passing(Function):  # type: ignore[misc]
    def process(self, input: Any, context: Any) -> Any:
        return input
