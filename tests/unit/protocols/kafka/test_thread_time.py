"""The quota of the server's time: what threads do for a request counts, too."""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from magnetar.base import thread_time
from magnetar.base.clock import SystemClock
from magnetar.broker.interop import interop
from magnetar.broker.log.opening import Opener
from magnetar.broker.quotas.model import Limit
from magnetar.protocols.kafka.large import LARGE_REQUEST_BYTES
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.storage.local.store import LocalLedgerStore
from magnetar.storage.store import EntryId
from magnetar.testing.clock import FakeClock
from magnetar.wire.convert import load
from magnetar.wire.kafka.messages import fetch as fetch_codec
from magnetar.wire.kafka.messages import heartbeat
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest
from tests.unit.protocols.kafka.mixed_logs import Mixed
from tests.unit.protocols.kafka.test_quotas import alter, entry, fetch
from tests.unit.protocols.kafka.test_request_time import (
    CLIENT,
    FREE_S,
    PERCENT,
    Meter,
    Run,
    beat_once,
    handled,
    takes,
    timed,
    told,
)
from tests.unit.protocols.kafka.test_session_life import request
from tests.unit.protocols.kafka.wire import until
from tests.unit.storage.conftest import SMALL
from tests.unit.storage.helpers import fill


def test_a_large_request_counts_what_threads_do_for_it(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They decode it and encode its answer; what it has left is then taken apart, for nobody's account."""
    monkeypatch.setattr(thread_time, "thread_time", spending(FREE_S + 0.25))

    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        handled(one, takes(clock, 0.0))
        one.feed(request(heartbeat, 1, HeartbeatRequest("g" * LARGE_REQUEST_BYTES, 0, "m")))
        await one.service.tasks.ended()
        assert await told(one) == [500]
        bucket = client.broker.client_quotas.bucket(Limit.WORKED, "ANONYMOUS", "test")
        assert bucket.left(0.0) == 10 * PERCENT - 2 * 100 * (FREE_S + 0.25)
        one.session.closed()

    with_broker(scenario)


def spending(seconds: float) -> Callable[[], float]:
    """A clock of threads by which each job takes so long."""
    ticks = itertools.count()
    return lambda: next(ticks) * seconds


def test_jobs_count_for_the_request_that_begins_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_time, "thread_time", spending(1.0))
    clock = FakeClock()

    async def scenario() -> None:
        opener = Opener()
        meters = [Meter(), Meter()]
        mine, other = (RequestTime(meter, clock.monotonic) for meter in meters)
        other.pause()
        begun = asyncio.create_task(opener.run("a", lambda budget: "of a task of mine"))
        other.go_on()
        other.pause()
        ahead = asyncio.ensure_future(opener.run("b", lambda budget: "mine"))
        mine.pause()
        assert await opener.run("c", lambda budget: "nobody's") == "nobody's"
        await begun
        other.go_on()
        with pytest.raises(ValueError, match="bad"):
            await opener.run("d", lambda budget: (_ for _ in ()).throw(ValueError("bad")))
        other.end()
        mine.end()
        await opener.run("e", lambda budget: "after the end")
        await ahead
        opener.close()
        assert meters[1].counted == [1.0], "also of a job that fails"
        assert meters[0].counted == [2.0]

    asyncio.run(scenario())


def test_what_began_before_the_end_of_a_request_counts_after_it() -> None:
    async def scenario() -> None:
        meter = Meter()
        time = RequestTime(meter, FakeClock().monotonic)
        job = thread_time.counted(lambda: None)
        has_ended = asyncio.Event()

        async def work_on() -> bool:
            await has_ended.wait()
            return thread_time.counted(print) is print

        task = asyncio.create_task(work_on())
        time.end()
        has_ended.set()
        assert await task, "what the request has begun works for others, too"
        assert thread_time.counted(print) is print
        await asyncio.to_thread(job)
        await asyncio.sleep(0)
        assert len(meter.counted) == 2

    asyncio.run(scenario())


def test_a_fetch_counts_what_is_converted_for_it(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the messages of Pulsar's producer come while it waits."""
    monkeypatch.setattr(thread_time, "thread_time", spending(1.0))
    monkeypatch.setattr(interop, "AT_ONCE_BYTES_MAX", -1)
    assert load()

    async def scenario(client: Any) -> None:
        log = await Mixed.create(client, "t")
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        bucket = client.broker.client_quotas.bucket(Limit.WORKED, "ANONYMOUS", "test")
        asked = fetch()
        asked.max_wait_ms = 60_000
        one.feed(request(fetch_codec, 12, asked))
        assert not one.peer.bytes
        await log.pulsar(b"a", b"b")
        await until(lambda: one.peer.bytes)
        assert bucket.left(clock.monotonic()) == 10 * PERCENT - 100
        one.session.closed()

    with_broker(scenario)


def test_reading_segments_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_time, "thread_time", spending(1.0))

    async def scenario() -> None:
        store = await LocalLedgerStore.start(tmp_path, settings=SMALL, clock=SystemClock())
        writer = await store.create()
        await fill(writer, [bytes(16 << 10)] * 40)
        await store.close()
        store = await LocalLedgerStore.start(tmp_path, settings=SMALL, clock=SystemClock())
        reader = await store.open(writer.ledger_id)
        meter = Meter()
        time = RequestTime(meter, FakeClock().monotonic)
        await reader.read(EntryId(0), 1 << 10)
        before = store.counters.disk_reads
        assert before
        time.end()
        assert meter.counted == [float(before)]
        await reader.read(EntryId(1), 1 << 20)
        assert store.counters.disk_reads > before
        assert len(meter.counted) == 1, "it was for nobody"
        await store.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("is_malformed", [False, True])
def test_nothing_counts_for_a_request_that_is_over(with_broker: Run, is_malformed: bool) -> None:
    """However it ends: without an answer, or with its connection, which others of the loop's work must not pay for."""

    async def scenario(client: Any) -> None:
        one, _ = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        handled(one, lambda context, asked: None)
        beat = beat_once()
        one.feed(beat if not is_malformed else (len(beat) - 5).to_bytes(4) + beat[4:-1])
        assert one.peer.closed is is_malformed
        assert thread_time.counted(print) is print
        one.session.closed()

    with_broker(scenario)
