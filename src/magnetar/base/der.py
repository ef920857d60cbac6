"""DER, read as far as certificates and stores of keys are looked into: values with a tag, a length and a content.

ITU-T X.690 defines the words of this module.  Anything but DER is a `ValueError`: also lengths that are not given in
advance, which BER allows, and tags of several bytes, which nothing here has.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

SEQUENCE: Final = 0x30
INTEGER: Final = 0x02
OCTETS: Final = 0x04
OBJECT_ID: Final = 0x06


class DerValue(NamedTuple):
    """One value: `whole` with its tag and length, `content` without."""

    tag: int
    whole: bytes
    content: bytes


def der_content(value: DerValue, tag: int) -> bytes:
    """What is in a value that has to be of the type `tag`.  Raises ValueError."""
    if value.tag != tag:
        raise ValueError(f"a value of the type {value.tag:#x} where {tag:#x} belongs")
    return value.content


def der_values(data: bytes) -> Iterator[DerValue]:
    """The values that follow one another in `data`.  Raises ValueError."""
    position = 0
    while position < len(data):
        begin = position
        if len(data) < position + 2 or data[position] & 0x1F == 0x1F:
            raise ValueError("a value that is no DER")
        tag, size = data[position], data[position + 1]
        position += 2
        if size & 0x80:
            count = size & 0x7F
            if not 1 <= count <= 4 or len(data) < position + count:
                raise ValueError("a length that is no DER")
            size = int.from_bytes(data[position : position + count])
            position += count
        end = position + size
        if end > len(data):
            raise ValueError("a value that is longer than what is around it")
        yield DerValue(tag, data[begin:end], data[position:end])
        position = end
