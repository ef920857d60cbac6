"""What is wrong with single values, when a block of them is refused."""

import struct
from abc import abstractmethod
from typing import Final

import pyarrow as pa
from google.protobuf.message import DecodeError

REASON_CHARS_MAX: Final = 300

# What reading a value may raise; everything else is a bug of ours.
UNDECODABLE: Final = (
    ValueError,  # Arrow's, UTF-8's and JSON's, too
    TypeError,
    LookupError,
    EOFError,
    ArithmeticError,
    RecursionError,
    DecodeError,
    struct.error,
)


class ByValue:
    """Looks at values one by one with `check`, which raises one of UNDECODABLE."""

    @abstractmethod
    def check(self, value: bytes) -> None:
        """Find what is wrong with a value, as far as that can be seen without making a column of it."""

    def faults(self, values: pa.Array) -> dict[int, str]:
        """The rows of `values` (none of them null) that `check` refuses, with the reason of each."""
        found = {}
        for row, value in enumerate(values.to_pylist()):
            try:
                self.check(value)
            except UNDECODABLE as error:
                found[row] = reason(error)
        return found


def reason(error: BaseException) -> str:
    """One line."""
    text = " ".join(str(error).split())
    return (text or "the value ends early")[:REASON_CHARS_MAX]
