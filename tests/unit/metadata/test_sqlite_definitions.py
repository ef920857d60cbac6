"""Damage in what SQLite's file says of its tables."""

import asyncio
from pathlib import Path

from magnetar.base.errors import ConfigError
from magnetar.metadata import sqlite_file
from magnetar.metadata.sqlite import SqliteMetadataStore


async def write(path: Path) -> None:
    store = SqliteMetadataStore(path)
    await store.put("/a", b"x" * 100)
    await store.close()


def test_any_byte_of_the_tables_definitions_may_be_damaged(tmp_path: Path) -> None:
    """What SQLite says of them then has the damaged bytes, and they are no text."""
    path = tmp_path / "metadata.sqlite"
    asyncio.run(write(path))
    good = path.read_bytes()
    refused = set()
    page_bytes = int.from_bytes(good[16:18], "big")  # the first page defines all tables
    for place in range(good.index(b"table"), page_bytes, 5):
        damaged = bytearray(good)
        damaged[place] ^= 0x80
        path.write_bytes(damaged)
        try:
            connection = sqlite_file.open_file(path)
            sqlite_file.load(path, connection)  # closes it when it refuses
            connection.close()
        except ConfigError as error:
            refused.add(str(error).partition(str(path))[2])
    assert (
        " is damaged: its tables are defined in bytes that are no text; put back a copy of the whole data folder"
        in (refused)
    )
