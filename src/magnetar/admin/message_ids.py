"""Message ids in bodies and answers of the admin API."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from magnetar.admin.answers import BadBody
from magnetar.broker.subscriptions.admin import MessagePosition

if TYPE_CHECKING:
    from magnetar.broker.log.partition import Partition


def message_id(
    partition: "Partition", ledger_id: int, entry_id: int, batch_index: int = -1, batch_size: int = 0
) -> dict[str, int]:
    """As answers carry it; `partitionIndex` is -1 for a topic that is not partitioned."""
    return {
        "ledgerId": ledger_id,
        "entryId": entry_id,
        "partitionIndex": partition.index if partition.topic.is_partitioned else -1,
        "batchIndex": batch_index,
        "batchSize": batch_size,
    }


def position_in(body: Mapping[str, Any]) -> MessagePosition:
    """What a body says; BadBody when it is no message id."""
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
