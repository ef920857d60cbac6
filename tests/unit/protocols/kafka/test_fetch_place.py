"""What counts as read to its end without a closer look is what a closer look would find there."""

from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.protocols.kafka.fetch_place import is_at_end
from magnetar.wire.kafka.messages.fetch import FetchPartition

NODE, EPOCH, END = 3, 7, 100


@pytest.mark.parametrize(
    ("at_end", "changes"),
    [
        (True, {}),
        (True, {"current_leader_epoch": -1}),
        (True, {"last_fetched_epoch": EPOCH}),
        (False, {"fetch_offset": END - 1}),
        (False, {"fetch_offset": END + 1}),
        (False, {"current_leader_epoch": EPOCH - 1}),
        (False, {"current_leader_epoch": EPOCH + 1}),
        (False, {"last_fetched_epoch": EPOCH - 1}),
        (False, {"last_fetched_epoch": EPOCH + 1}),
    ],
)
def test_a_partition_is_at_its_end_if_the_offset_and_all_epochs_say_so(
    at_end: bool, changes: dict[str, int]
) -> None:
    fields: dict[str, Any] = {"fetch_offset": END, "current_leader_epoch": EPOCH} | changes
    wanted = FetchPartition(0, **fields)
    partition: Any = SimpleNamespace(
        leader_id=NODE, log=SimpleNamespace(high_watermark=END, leader_epoch=EPOCH)
    )
    assert is_at_end(NODE, wanted, partition) is at_end
    assert not is_at_end(NODE + 1, wanted, partition), "another node leads it"
