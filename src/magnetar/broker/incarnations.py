"""Whether a name still means the thing on which a change began.

A change that waits for its turn takes a mark first.  If the thing with the name is deleted meanwhile, the mark
becomes void, even if another one has the name by then.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Name = TypeVar("Name", bound=Hashable)


class Mark:
    """What a change holds while it is in progress."""

    __slots__ = ("__weakref__", "is_void")

    def __init__(self) -> None:
        self.is_void = False


class Incarnations(Generic[Name]):
    """Uses memory only for the names that are being changed."""

    def __init__(self) -> None:
        self._marks: WeakValueDictionary[Name, Mark] = WeakValueDictionary()

    def mark(self, name: Name) -> Mark:
        found = self._marks.get(name)
        if found is None:
            found = self._marks[name] = Mark()
        return found

    def end(self, name: Name) -> None:
        """The thing with this name is deleted."""
        found = self._marks.pop(name, None)
        if found is not None:
            found.is_void = True
