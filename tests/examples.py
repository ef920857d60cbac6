"""How many examples a property needs that the profile's fifty do not hold: a mutant that they let live says so."""

from hypothesis import settings


def at_least(count: int) -> int:
    """So many, or as many as the profile has: `make soak` tries each property with more."""
    return max(count, settings().max_examples)
