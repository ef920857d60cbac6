"""Steps of segments that are kept for readers, by ledger and entry; newer ones replace the oldest."""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Costly(Protocol):
    @property
    def cost(self) -> int:
        """How many bytes it keeps in memory."""
        ...


T = TypeVar("T", bound=Costly)


class Kept(Generic[T]):
    """At most `count_max` items of at most `bytes_max` bytes together, but at least one.  The item put or used
    longest ago is dropped first.
    """

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._items: OrderedDict[tuple[int, int], T] = OrderedDict()

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._items

    def get(self, key: tuple[int, int]) -> T | None:
        """The item of `key`; None if there is none.  Its place in the order does not change."""
        return self._items.get(key)

    def use(self, key: tuple[int, int]) -> None:
        """Move an item to the end of the order: it will be dropped last."""
        self._items.move_to_end(key)

    def put(self, key: tuple[int, int], item: T) -> None:
        self.pop(key)
        self._items[key] = item
        self._bytes += item.cost
        while len(self._items) > self._count_max or (self._bytes > self._bytes_max and len(self._items) > 1):
            self.pop(next(iter(self._items)))

    def pop(self, key: tuple[int, int]) -> T | None:
        item = self._items.pop(key, None)
        if item is not None:
            self._bytes -= item.cost
        return item

    def forget(self, ledger_id: int) -> None:
        """Drop the items of a deleted ledger."""
        for key in [key for key in self._items if key[0] == ledger_id]:
            self.pop(key)

    def clear(self) -> None:
        self._items.clear()
        self._bytes = 0
