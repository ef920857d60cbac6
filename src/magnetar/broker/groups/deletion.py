"""What the deletion of a group removes besides its record."""

from collections.abc import Collection, Sequence

from magnetar.ledger.cursor_store import CursorKey, CursorStore
from magnetar.metadata.store import Delete, Put


async def drop_offsets(
    cursors: CursorStore, group_id: str, kept: Collection[str], also: Sequence[Put | Delete]
) -> None:
    """Delete a group's offsets, except those in the topics of `kept` (full names), and apply `also`, in one step.

    Raises MetadataError, and EntryCorrupt as `CursorStore.drop`.
    """
    if kept:
        dropped = [one for one in cursors.subscription(group_id).items() if one[0] not in kept]
        keys = [CursorKey(group_id, topic, partition) for topic, each in dropped for partition in each]
        await cursors.drop(keys, also)
    else:
        await cursors.drop_subscription(group_id, also)
