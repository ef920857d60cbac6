"""Every implementation of the `MetadataStore` port, for the contract test."""

from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.metadata.store import MetadataStore
from magnetar.testing.metadata import MemoryMetadataStore

STORES: dict[str, Callable[[Path], MetadataStore]] = {
    "memory": lambda folder: MemoryMetadataStore(),
    "sqlite": lambda folder: SqliteMetadataStore(folder / "metadata.db"),
}


@pytest.fixture(params=sorted(STORES))
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], MetadataStore]:
    """Opens a fresh, empty store; to be called once, inside the event loop that uses it."""
    make = STORES[request.param]
    return lambda: make(tmp_path)
