"""Whether something that goes by a name is still the one that a change was begun on.

A change that waits for its turn takes a mark before; when what has the name is deleted meanwhile the mark is void, also
if there is another one of that name by then.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Name = TypeVar("Name", bound=Hashable)


class Mark:
    """What a change holds while it goes on."""

    __slots__ = ("__weakref__", "is_void")

    def __init__(self) -> None:
        self.is_void = False


class Incarnations(Generic[Name]):
    """Costs memory only for the names that are being changed."""

    def __init__(self) -> None:
        self._marks: WeakValueDictionary[Name, Mark] = WeakValueDictionary()

    def mark(self, name: Name) -> Mark:
        found = self._marks.get(name)
        if found is None:
            found = self._marks[name] = Mark()
        return found

    def end(self, name: Name) -> None:
        """What has the name is deleted."""
        found = self._marks.pop(name, None)
        if found is not None:
            found.is_void = True
