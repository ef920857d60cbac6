"""Small words for the tests of dispatchers: units, consumers, and what was delivered to which consumer."""

from magnetar.broker.subscriptions.dispatch.model import (
    Actions,
    ActiveChange,
    Consumer,
    Deliver,
    Rewind,
    Unit,
)


def units(start: int, count: int, *, batch: int = 1, **fields: object) -> list[Unit]:
    """`count` entries of `batch` messages each, from offset `start` on; the entry handle is its base offset."""
    return [
        Unit(base, base, base + batch, payload=b"read", **fields)  # type: ignore[arg-type]
        for base in range(start, start + count * batch, batch)
    ]


def consumer(name: str = "c", **fields: object) -> Consumer:
    return Consumer(name, name, **fields)  # type: ignore[arg-type]


def delivered(actions: Actions) -> list[tuple[str, int]]:
    """(consumer name, base offset) of each delivery, in order."""
    return [
        (action.consumer.name, unit.base_offset)
        for action in actions
        if isinstance(action, Deliver)
        for unit in action.units
    ]


def to(actions: Actions, name: str) -> list[int]:
    """Base offsets delivered to one consumer."""
    return [base for who, base in delivered(actions) if who == name]


def rewinds(actions: Actions) -> int:
    return sum(isinstance(action, Rewind) for action in actions)


def changes(actions: Actions) -> list[tuple[str, bool]]:
    return [
        (action.consumer.name, action.is_active) for action in actions if isinstance(action, ActiveChange)
    ]


def whole(*bases: int, batch: int = 1) -> list[tuple[int, int]]:
    """The ranges that acknowledge whole entries."""
    return [(base, base + batch) for base in bases]
