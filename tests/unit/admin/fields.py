"""The names of the fields of a JSON document: objects within objects are `field.inner`, in a list `field[].inner`."""

from collections.abc import Callable, Iterator
from typing import Any

DATA = "*"  # stands for keys that are data


def below(name: str, fields: set[str]) -> set[str]:
    return {name, *(f"{name}.{field}" for field in fields)}


def fields(document: Any, is_data: Callable[[str], bool] = lambda _: False) -> set[str]:
    """All names in it; a list's are those of all its elements.  A key that `is_data` is shown as `DATA`."""
    return set(_named(document, "", is_data))


def _named(value: Any, path: str, is_data: Callable[[str], bool]) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            place = f"{path}.{DATA if is_data(name) else name}".removeprefix(".")
            yield place
            yield from _named(inner, place, is_data)
    elif isinstance(value, list):
        for inner in value:
            if isinstance(inner, dict):
                yield f"{path}[]"
                yield from _named(inner, f"{path}[]", is_data)
