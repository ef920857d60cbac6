"""Finds the wrong values in a block that was refused."""

import struct
from abc import abstractmethod
from typing import Final

import pyarrow as pa
from google.protobuf.message import DecodeError

REASON_CHARS_MAX: Final = 300

# Exceptions of reading a value; any other is a bug of ours.
UNDECODABLE: Final = (
    ValueError,  # also those of Arrow, UTF-8 and JSON
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    RecursionError,
    DecodeError,
    struct.error,
)


class ByValue:
    """Checks values one by one with `check`, which raises one of UNDECODABLE."""

    @abstractmethod
    def check(self, value: bytes) -> None:
        """Raise the fault of a value, if it can be found without making a column."""

    def faults(self, values: pa.Array) -> dict[int, str]:
        """The rows of `values` (none is null) that `check` refuses, with the reason for each."""
        found = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                self.check(value)
            except UNDECODABLE as error:
                found[row] = reason(error)
        return found


def reason(error: BaseException) -> str:
    """The reason in one line."""
    text = " ".join(str(error).split())
    return (text or "the value ends early")[:REASON_CHARS_MAX]
