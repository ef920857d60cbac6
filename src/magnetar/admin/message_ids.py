"""Message ids in bodies and answers of the admin API."""

from collections.abc import Mapping
from typing import Any

from magnetar.admin.answers import BadBody
from magnetar.broker.subscriptions.model import MessagePosition
from magnetar.broker.usecases.peeking import MessageId


def message_id(found: MessageId) -> dict[str, int]:
    """A message id in the form of answers."""
    return {
        "ledgerId": found.ledger_id,
        "entryId": found.entry_id,
        "partitionIndex": found.partition,
        "batchIndex": found.batch_index,
        "batchSize": found.batch_size,
    }


def position_in(body: Mapping[str, Any]) -> MessagePosition:
    """The position that a body names.  Raises BadBody if it is no message id."""
    ledger_id = _whole(body, "ledgerId", None)
    entry_id = _whole(body, "entryId", None)
    return MessagePosition(
        ledger_id, entry_id, _whole(body, "batchIndex", -1), body.get("excluded", False) is True
    )


def _whole(body: Mapping[str, Any], name: str, default: int | None) -> int:
    found = body.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int) or not -(1 << 63) <= found < 1 << 63:
        raise BadBody(f"a message id needs {name}, a whole number")
    return found
