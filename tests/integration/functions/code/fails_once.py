"""Fails at the first call for a message that asks for it."""

_failed: set[str] = set()


def process(input):  # type: ignore[no-untyped-def]
    if input.startswith("fail") and input not in _failed:
        _failed.add(input)
        raise ValueError(input)
    return input
