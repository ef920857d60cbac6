"""How many examples a test has, in `make test` and in `make soak`."""

from typing import Any

import pytest
from hypothesis import settings


def at_least(count: int) -> int:
    """So many of a property, or as many as the profile has: `make soak` tries each property with more.

    A property that the profile's fifty do not hold needs it: a mutant that they let live says how many.
    """
    return max(count, settings().max_examples)


def seeds(count: int, in_soak: int) -> list[Any]:
    """Values of a parameter: `count` seeds that every run tries, and those from there to `in_soak`, of `make soak`."""
    return [*range(count), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(count, in_soak))]
