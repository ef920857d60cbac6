"""The operations that a caller may do (KIP-430), as bit fields with Kafka's numbers."""

from collections.abc import Iterable

from magnetar.broker.security.model import Operation


def bits(operations: Iterable[Operation]) -> int:
    """A bit field in which the bit with each operation's number is set."""
    return sum(1 << operation for operation in operations)
