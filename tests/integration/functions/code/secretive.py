"""Says what it knows of its secrets, without a value."""

import hashlib
from typing import Any

from pulsar import Function


class Secretive(Function):  # type: ignore[misc]
    def process(self, input: str, context: Any) -> str:
        value = context.get_secret(input)
        return "none" if value is None else hashlib.sha256(value.encode()).hexdigest()
