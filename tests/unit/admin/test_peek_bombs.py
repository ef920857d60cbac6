"""Showing one message: what is small only because it is compressed costs what it is allowed to, and no more."""

import asyncio
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.answers import Refused
from magnetar.admin.peek import BODIES_BYTES_MAX, BODY_BYTES_MAX, Bodies, message_response
from magnetar.broker.interop.model import Formed
from magnetar.broker.log.opening import Opener
from magnetar.broker.security.model import ANONYMOUS, Principal
from magnetar.ledger.entry import Entry, EntryKind
from magnetar.storage.store import EntryId, LedgerId
from magnetar.wire.pulsar import PulsarApi_pb2 as pb
from magnetar.wire.pulsar.entry import frame_entry, read_entry
from tests.unit.admin.world import T, World, run
from tests.unit.broker.test_opening import Gate

Play = Callable[..., None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    return partial(run, tmp_path)


def zeros(size: int) -> bytes:
    metadata = pb.MessageMetadata(
        producer_name="p",
        sequence_id=1,
        publish_time=1,
        compression=pb.ZLIB,
        uncompressed_size=size,
    )
    return frame_entry(metadata, zlib.compress(bytes(size)))


ANN, BOB = (Principal("User", name) for name in ("ann", "bob"))


async def publish(world: World, payload: bytes) -> None:
    written: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    view = read_entry(memoryview(payload), verify=True)
    world.partition.publish(memoryview(payload), view, world.door.clock.now_ms(), written.set_result)
    assert await written is None


def test_peeking_at_a_bomb_is_refused_before_anything_is_decompressed(play: Play) -> None:
    """Twelve such requests took 1.4 GB, and no client was answered meanwhile."""

    async def scenario(world: World) -> None:
        await publish(world, zeros(BODY_BYTES_MAX + 1))
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        before = world.broker.opener.small_done
        for _ in range(12):
            answer = await world.ask("GET", f"{T}/subscription/s/position/1", status=413)
            assert str(BODY_BYTES_MAX) in answer["reason"]
        ledger = (await world.ask("GET", f"{T}/lastMessageId"))["ledgerId"]
        await world.ask("GET", f"{T}/ledger/{ledger}/entry/0", status=413)
        assert world.broker.opener.small_done == before

    play(scenario)


def test_a_message_is_decompressed_off_the_loop_and_others_are_answered_meanwhile(play: Play) -> None:
    async def scenario(world: World) -> None:
        await publish(world, zeros(5 << 20))
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        gate = Gate(world.broker.opener)
        await gate.close(2)
        peeking = asyncio.ensure_future(world.ask("GET", f"{T}/subscription/s/position/1"))
        for _ in range(3):
            await world.ask("GET", f"{T}/lastMessageId")
        assert not peeking.done()
        gate.open.set()
        assert (await peeking).content == bytes(5 << 20)
        await asyncio.gather(*gate.holders)
        assert world.broker.opener.large_done == 1

    play(scenario)


def formed(size: int) -> Formed:
    entry = Entry(0, 0, 1, memoryview(b""), EntryKind.PULSAR, LedgerId(3), EntryId(4))
    return Formed(entry, zeros(size))


def test_bodies_are_counted_until_they_were_sent_and_a_client_past_the_limit_asks_again() -> None:
    async def scenario() -> None:
        opener, bodies = Opener(), Bodies()
        answers = [
            await message_response(formed(BODY_BYTES_MAX), opener, bodies, ANONYMOUS) for _ in range(2)
        ]
        assert bodies.bytes == BODIES_BYTES_MAX
        with pytest.raises(Refused) as refused:
            await message_response(formed(1), opener, bodies, ANONYMOUS)
        assert refused.value.status == 503
        sent: list[Any] = []

        async def send(part: Any) -> None:
            sent.append(part)
            assert bodies.bytes >= BODY_BYTES_MAX

        async def hung_up(part: Any) -> None:
            raise ConnectionError

        await answers[0]({"type": "http"}, asyncio.Future, send)
        assert sum(len(part.get("body", b"")) for part in sent) == BODY_BYTES_MAX
        with pytest.raises(ConnectionError):
            await answers[1]({"type": "http"}, asyncio.Future, hung_up)
        assert bodies.bytes == 0
        opener.close()

    asyncio.run(scenario())


def test_one_principal_has_half_of_what_may_be_sent() -> None:
    """Two messages of 32 MiB, a few kilobytes each in the log, to a client that read a byte now and then: no other
    client could look at a message, or list many topics, for as long as that one liked.
    """

    async def scenario() -> None:
        opener, bodies = Opener(), Bodies()
        held = await message_response(formed(BODY_BYTES_MAX), opener, bodies, ANN)
        with pytest.raises(Refused) as refused:
            await message_response(formed(1), opener, bodies, ANN)
        assert refused.value.status == 503
        await message_response(formed(BODY_BYTES_MAX), opener, bodies, BOB)

        async def send(part: Any) -> None: ...

        await held({"type": "http"}, asyncio.Future, send)
        await message_response(formed(BODY_BYTES_MAX), opener, bodies, ANN)
        opener.close()

    asyncio.run(scenario())


def test_what_cannot_be_decompressed_is_not_counted_for_ever() -> None:
    async def scenario() -> None:
        opener, bodies = Opener(), Bodies()
        whole = zeros(1000)
        metadata = read_entry(memoryview(whole), verify=True).metadata
        broken = frame_entry(metadata, b"no such stream")
        with pytest.raises(Refused) as refused:
            await message_response(Formed(formed(1).entry, broken), opener, bodies, ANN)
        assert refused.value.status == 500
        assert bodies.bytes == 0
        waiting = asyncio.ensure_future(message_response(formed(5 << 20), opener, bodies, ANN))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert bodies.bytes == 0
        opener.close()

    asyncio.run(scenario())
