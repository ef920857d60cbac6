"""The operations that clients may ask about (KIP-430), as bit fields: what the caller may do, by Kafka's numbers."""

from collections.abc import Iterable

from magnetar.broker.security.model import Operation


def bits(operations: Iterable[Operation]) -> int:
    """One bit for each operation, at its number."""
    return sum(1 << operation for operation in operations)
