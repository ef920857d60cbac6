"""Steps of segments that are kept for readers, by ledger and entry; the oldest give way to newer ones."""

from collections import OrderedDict
from typing import Generic, Protocol, TypeVar


class Costly(Protocol):
    @property
    def cost(self) -> int:
        """Bytes that it keeps."""
        ...


T = TypeVar("T", bound=Costly)


class Kept(Generic[T]):
    """At most `count_max`, and one at least, of `bytes_max` together; the one put or used longest ago goes first."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._items: OrderedDict[tuple[int, int], T] = OrderedDict()

    def __contains__(self, key: tuple[int, int]) -> bool:
        return key in self._items

    def get(self, key: tuple[int, int]) -> T | None:
        """What there is; it stays at its place among the others."""
        return self._items.get(key)

    def use(self, key: tuple[int, int]) -> None:
        """It goes last."""
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
        """The ledger is deleted."""
        for key in [key for key in self._items if key[0] == ledger_id]:
            self.pop(key)

    def clear(self) -> None:
        self._items.clear()
        self._bytes = 0
