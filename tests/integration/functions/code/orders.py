"""Functions of records, and of what serdes make."""

from typing import Any

from pulsar import Function, SerDe
from pulsar.schema import Integer, Record, String


class Order(Record):  # type: ignore[misc]
    what = String()
    count = Integer()


class Invoice(Record):  # type: ignore[misc]
    text = String()
    cents = Integer()


class Bill(Function):  # type: ignore[misc]
    def process(self, input: Order, context: Any) -> Invoice | str:
        if input.what == "nonsense":
            return "no invoice"
        return Invoice(text=f"{input.count} {input.what}", cents=input.count * 25)


def shout(input: str) -> str:
    return input.upper()


def double(input: Any) -> Any:
    return input * 2


class Careful(SerDe):  # type: ignore[misc]
    def serialize(self, input: Any) -> bytes:
        if "odd" in input:
            raise ValueError("nothing odd")
        return repr(input).encode()

    def deserialize(self, input_bytes: bytes) -> Any:
        raise NotImplementedError
