"""Data to send, in parts that one request can take."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_parts(items: Iterable[T], size_of: Callable[[T], int], size_max: int) -> Iterator[list[T]]:
    """The items in order, in lists of at most `size_max` by `size_of`, or of one item that is larger."""
    part: list[T] = []
    size = 0
    for one in items:
        more = size_of(one)
        if part and size + more > size_max:
            yield part
            part, size = [], 0
        part.append(one)
        size += more
    if part:
        yield part
