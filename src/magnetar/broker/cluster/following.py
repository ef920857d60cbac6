"""How a broker hears what other brokers write: all that there is under a path, and each later change, in order."""

from collections.abc import Callable

from magnetar.metadata.store import Change, MetadataStore, Versioned

Learn = Callable[[str, Versioned | None], None]


async def follow(store: MetadataStore, root: str, learn: Learn) -> Callable[[], None]:
    """Call `learn` for each path under `root`, and from then on for each change; the returned function ends that.

    Raises:
        MetadataError: `learn` hears nothing more.
    """
    touched: dict[str, None] = {}  # paths that have changed while this reads, in order
    is_reading = True

    def changed(change: Change) -> None:
        if is_reading:
            touched[change.path] = None
        else:
            learn(change.path, change.value)

    unwatch = store.watch(root, changed)
    try:
        for path, stored in await store.scan(root):
            learn(path, stored)
        while touched:
            path = next(iter(touched))
            del touched[path]
            learn(path, await store.get(path))
        is_reading = False
    except BaseException:
        unwatch()
        raise
    return unwatch
