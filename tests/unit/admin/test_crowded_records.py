"""Answers with stored records: how much each gets while many are being sent."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.routes import segments
from magnetar.admin.routes.segments import ENTRIES_BYTES_DEFAULT, IN_FLIGHT_BYTES_MAX
from magnetar.base.errors import StorageError
from magnetar.broker.usecases.history import RecordReader
from magnetar.wire.pulsar import PulsarApi_pb2 as pb

from .world import World, run

ENTRIES = "/magnetar/v1/entries?topic=t&partition=0&offset=0"
ENTRY_BYTES = 40_000


def test_an_answer_gets_little_while_many_are_being_sent(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.publish(5, properties=[pb.KeyValue(key="k", value="v" * ENTRY_BYTES)])
        sent = world.context.sent
        whole = await world.http.get(ENTRIES)
        assert len(whole.content) > 5 * ENTRY_BYTES
        assert sent.total == 0, "it was sent"
        sent.total = IN_FLIGHT_BYTES_MAX
        assert len((await world.http.get(ENTRIES)).content) < 3 * ENTRY_BYTES
        assert sent.total == IN_FLIGHT_BYTES_MAX

    run(tmp_path, scenario)


def test_what_is_being_read_counts_as_what_is_being_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients that all asked at once got eight megabytes each, however many they were."""
    monkeypatch.setattr(segments, "IN_FLIGHT_BYTES_MAX", ENTRIES_BYTES_DEFAULT)
    asked: list[int] = []
    begun, goes_on = asyncio.Event(), asyncio.Event()
    original = RecordReader.read

    async def read(reader: RecordReader, offset: int, end_offset: int, bytes_max: int, **form: Any) -> Any:
        asked.append(bytes_max)
        if len(asked) == 1:
            begun.set()
            await goes_on.wait()
            raise StorageError("not now")
        return await original(reader, offset, end_offset, bytes_max, **form)

    async def scenario(world: World) -> None:
        await world.publish(5, properties=[pb.KeyValue(key="k", value="v" * ENTRY_BYTES)])
        monkeypatch.setattr(RecordReader, "read", read)
        first = asyncio.ensure_future(world.http.get(ENTRIES))
        await begun.wait()
        await world.http.get(ENTRIES)
        goes_on.set()
        assert (await first).status_code == 503
        assert world.context.sent.total == 0
        await world.http.get(ENTRIES)
        assert asked[0] == asked[2] == ENTRIES_BYTES_DEFAULT
        assert asked[1] < ENTRIES_BYTES_DEFAULT

    run(tmp_path, scenario)
