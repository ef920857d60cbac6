"""Names in a sentence: all of them if they are few."""

from collections.abc import Sequence


def listed(names: Sequence[object], most: int) -> str:
    """`a, b and 3 more`: the first `most` names, and how many others there are."""
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
