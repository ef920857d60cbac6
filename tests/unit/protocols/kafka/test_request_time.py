"""The quota of the server's time: what counts for a client, and what it feels of it (KIP-124)."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base import thread_time
from magnetar.broker.quotas.model import Limit
from magnetar.protocols.kafka.handlers import fetch as fetch_handler
from magnetar.protocols.kafka.large import LARGE_REQUEST_BYTES, Large
from magnetar.protocols.kafka.registry import Deferred, Silent
from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.testing.clock import FakeClock
from magnetar.wire.kafka.messages import asking, heartbeat
from magnetar.wire.kafka.messages import fetch as fetch_codec
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magnetar.wire.kafka.runtime import Buffer
from tests.unit.protocols.kafka.test_quotas import alter, entry, fetch, fixture, topic
from tests.unit.protocols.kafka.test_session_life import Fixture, request

Run = Callable[..., None]
CLIENT = [("client-id", "test")]
PERCENT = 50.0
FREE_S = 5.0  # ten seconds' worth


class Meter:
    def __init__(self) -> None:
        self.counted: list[float] = []
        self.owed_ms = 0

    def worked(self, seconds: float) -> int:
        self.counted.append(seconds)
        return self.owed_ms


# --- what counts -----------------------------------------------------------------------------------------------------


def test_time_counts_while_it_is_worked_on_and_once() -> None:
    clock, meter = FakeClock(), Meter()
    time = RequestTime(meter, clock.monotonic)
    clock.advance(1)
    time.pause()
    time.pause()
    clock.advance(10)
    time.go_on()
    clock.advance(2)
    time.go_on()
    clock.advance(3)
    meter.owed_ms = 700
    assert time.told_ms() == 700
    clock.advance(4)
    assert time.told_ms() == 0, "the client was told already"
    clock.advance(5)
    time.end()
    assert meter.counted == [6.0, 4.0, 5.0]


def test_a_client_waits_for_a_second_at_most() -> None:
    meter = Meter()
    meter.owed_ms = 90_000
    time = RequestTime(meter, FakeClock().monotonic)
    assert time.told_ms() == 1_000
    time.end()


def test_work_that_waits_counts_for_its_steps() -> None:
    clock, meter = FakeClock(), Meter()

    async def work() -> str:
        clock.advance(1)
        await asyncio.sleep(0)
        clock.advance(2)
        with pytest.raises(ValueError, match="found"):
            await fails()
        clock.advance(4)
        return "done"

    async def fails() -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waiting.set_exception, ValueError("found"))
        await waiting

    async def scenario() -> None:
        time = RequestTime(meter, clock.monotonic)
        time.pause()

        async def others() -> None:
            for _ in range(5):
                clock.advance(100)
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        assert await time.of(work()) == "done"
        time.end()
        await beside

    asyncio.run(scenario())
    assert meter.counted == [7.0]


def test_work_that_is_cancelled_hears_of_it() -> None:
    heard: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(0)  # a bare step, in which there is no future to be cancelled
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    async def scenario() -> None:
        time = RequestTime(Meter(), FakeClock().monotonic)
        task = asyncio.create_task(time.of(work()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert heard == ["cancelled"]


# --- what clients feel -----------------------------------------------------------------------------------------------


def timed(client: Any) -> tuple[Fixture, FakeClock]:
    """A session in whose broker no time passes but what the test lets pass."""
    one, clock = fixture(client)
    client.broker.client_quotas._clock = client.broker.cases.quotas._clock = clock
    return one, clock


def handled(one: Fixture, handle: Callable[[Any, Any], Any]) -> None:
    api = one.service.apis[heartbeat.API_KEY]
    one.service.apis[heartbeat.API_KEY] = replace(api, handle=handle)


def takes(clock: FakeClock, seconds: float) -> Callable[[Any, Any], Any]:
    """A handler that works so long."""

    def handle(context: Any, asked: Any) -> HeartbeatResponse:
        clock.advance(seconds)
        return HeartbeatResponse()

    return handle


async def told(one: Fixture, version: int = 1) -> list[int]:
    """The throttle times of the heartbeats answered so far."""
    for _ in range(5):
        await asyncio.sleep(0)
    found, view = [], memoryview(one.peer.bytes)
    decode = asking.load(heartbeat.API_KEY).decode_response
    while len(view):
        size = int.from_bytes(view[:4], "big")
        found.append(decode(version, memoryview(bytes(view[8 : 4 + size]))).throttle_time_ms)
        view = view[4 + size :]
    return found


def beat_once(number: int = 7) -> bytes:
    return request(heartbeat, 1, HeartbeatRequest("g", 0, "m"), number)


def test_a_client_that_used_more_is_told_how_long_to_wait_and_waits(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        # While it is worked for a client, half of what that takes comes free again.
        takes_s = [FREE_S, 0.5, 1.0, 3.0]

        def handle(context: Any, asked: Any) -> HeartbeatResponse:
            clock.advance(takes_s.pop(0))
            return HeartbeatResponse()

        handled(one, handle)
        for _ in range(2):
            one.feed(beat_once())
        assert await told(one) == [0, 500]
        clock.advance(0.49)
        assert not one.peer.reading
        clock.advance(0.02)
        assert one.peer.reading
        one.feed(beat_once())
        assert 980 <= (await told(one))[2] <= 1_000
        clock.advance(1.1)
        one.feed(beat_once())
        assert (await told(one))[3] == 1_000, "no longer at once"
        assert not takes_s
        one.session.closed()

    with_broker(scenario)


def test_what_a_request_does_after_a_wait_counts_and_the_wait_does_not(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]

        async def handle() -> HeartbeatResponse:
            clock.advance(FREE_S)
            await asyncio.sleep(0)
            clock.advance(0.25)
            return HeartbeatResponse()

        handled(one, lambda context, asked: handle())
        one.feed(beat_once())
        clock.advance(FREE_S)  # others have their turn
        for _ in range(5):
            await asyncio.sleep(0)
        assert await told(one) == [500]

        handled(one, one.handle)
        clock.advance(0.6)
        one.feed(beat_once())
        clock.advance(1_000)
        one.waiting[0].resolve(HeartbeatResponse())
        for _ in range(3):
            await asyncio.sleep(0)
        assert await told(one) == [500, 0]
        one.session.closed()

    with_broker(scenario)


def test_a_longer_wait_for_another_quota_stands(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]

        def handle(context: Any, asked: Any) -> HeartbeatResponse:
            clock.advance(FREE_S + 0.5)
            return HeartbeatResponse(throttle_time_ms=70_000)

        handled(one, handle)
        one.feed(beat_once())
        assert await told(one) == [70_000]
        clock.advance(69)
        assert not one.peer.reading
        one.session.closed()

    with_broker(scenario)


@pytest.mark.parametrize("answer", [None, Silent(1)])
def test_a_request_without_an_answer_counts(with_broker: Run, answer: Silent | None) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]

        def handle(context: Any, asked: Any) -> Silent | None:
            clock.advance(FREE_S + 0.5)
            return answer

        handled(one, handle)
        one.feed(beat_once())
        assert await told(one) == []
        clock.advance(0.9)
        assert not one.peer.reading
        clock.advance(0.2)
        assert one.peer.reading
        one.session.closed()

    with_broker(scenario)


@pytest.mark.parametrize("works_on", [False, True])
def test_a_request_counts_whose_client_has_gone(with_broker: Run, works_on: bool) -> None:
    """What it had taken by then, and what it takes afterwards: it is worked on to its end."""

    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        goes_on = asyncio.Event()

        async def work() -> HeartbeatResponse:
            clock.advance(1)
            await goes_on.wait()
            clock.advance(2)
            return HeartbeatResponse()

        def waits(context: Any, asked: Any) -> Deferred:
            clock.advance(1)
            return Deferred()

        handled(one, (lambda context, asked: work()) if works_on else waits)
        one.feed(beat_once())
        assert await told(one) == []
        bucket = client.broker.client_quotas.bucket(Limit.WORKED, "ANONYMOUS", "test")
        one.session.closed()
        assert bucket.left(clock.monotonic()) == 10 * PERCENT - 100
        if works_on:
            goes_on.set()
            await one.service.tasks.ended()
            assert bucket.left(clock.monotonic()) == 10 * PERCENT - 300 + 2 * PERCENT

    with_broker(scenario)


def test_a_large_request_counts_what_the_loop_does_for_it(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_time, "thread_time", lambda: 0.0)

    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        handled(one, takes(clock, FREE_S + 0.25))
        one.feed(request(heartbeat, 1, HeartbeatRequest("g" * LARGE_REQUEST_BYTES, 0, "m")))
        clock.advance(FREE_S)
        await one.service.tasks.ended()
        assert await told(one) == [500]
        assert not one.peer.reading
        one.session.closed()

    with_broker(scenario)


def test_a_quota_holds_on_connections_that_there_are(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        handled(one, takes(clock, FREE_S + 0.25))
        one.feed(beat_once())
        assert await told(one) == [0]
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        one.feed(beat_once())
        assert await told(one) == [0, 500]
        assert await alter(client, entry(CLIENT, request_percentage=None)) == [0]
        clock.advance(1)
        one.feed(beat_once())
        assert await told(one) == [0, 500, 0]
        one.session.closed()

    with_broker(scenario)


@pytest.mark.parametrize("is_later", [False, True])
def test_writing_an_answer_is_paid_for_by_the_next_request(with_broker: Run, is_later: bool) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        api = one.service.apis[heartbeat.API_KEY]
        takes_s = [FREE_S, 0.0]

        def encode(version: int, response: Any, parts: list[Buffer]) -> None:
            clock.advance(takes_s.pop(0))
            api.encode_response(version, response, parts)

        handle = one.handle if is_later else lambda context, asked: HeartbeatResponse()
        one.service.apis[heartbeat.API_KEY] = replace(api, handle=handle, encode_response=encode)
        one.feed(beat_once())
        if is_later:
            clock.advance(1000)
            one.waiting[0].resolve(HeartbeatResponse())
        assert await told(one) == [0]
        handled(one, takes(clock, 0.5))
        one.feed(beat_once())
        assert await told(one) == [0, 500]
        one.session.closed()

    with_broker(scenario)


def test_the_wait_for_a_thread_does_not_count(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]

        async def handle() -> Large:
            return Large(HeartbeatResponse())

        handled(one, lambda context, asked: handle())
        one.feed(beat_once())
        await asyncio.sleep(0)
        clock.advance(1000)
        await one.service.tasks.ended()
        handled(one, takes(clock, FREE_S))
        one.feed(beat_once())
        assert await told(one) == [0, 0]
        one.session.closed()

    with_broker(scenario)


def test_connections_of_a_client_share_its_time(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        assert await alter(client, entry([("user", "ANONYMOUS")], request_percentage=PERCENT)) == [0]
        takes_s = [FREE_S, 0.5]

        def handle(context: Any, asked: Any) -> HeartbeatResponse:
            clock.advance(takes_s.pop(0))
            return HeartbeatResponse()

        handled(one, handle)
        one.feed(beat_once())
        assert await told(one) == [0]
        one.peer, other = one.connect(client)
        first, one.session = one.session, other
        one.feed(beat_once())
        assert await told(one) == [500]
        first.closed()
        other.closed()

    with_broker(scenario)


def test_a_fetch_is_measured_when_it_looks_again(with_broker: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        looks = []
        collect = fetch_handler._Fetch.collect

        def slow(self: Any) -> None:
            looks.append(clock.monotonic())
            clock._elapsed_s += FREE_S / 2 + 0.25
            collect(self)

        for name in ("collect", "_collect_again"):
            monkeypatch.setattr(fetch_handler._Fetch, name, slow)
        asked = fetch()
        asked.max_wait_ms = 60_000
        one.feed(request(fetch_codec, 12, asked))
        assert len(looks) == 1
        clock.advance(61)
        await asyncio.sleep(0)
        assert len(looks) == 2
        assert one.peer.bytes
        assert not one.peer.reading
        one.session.closed()

    with_broker(scenario)


def test_a_fetch_that_reads_or_takes_turns_is_measured_in_its_steps(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(client: Any) -> None:
        await topic(client)
        one, clock = timed(client)
        assert await alter(client, entry(CLIENT, request_percentage=PERCENT)) == [0]
        collect, looks = fetch_handler._Fetch.collect, []

        def finds_what_is_stored(self: Any) -> None:
            collect(self)
            looks.append(clock.monotonic())
            if len(looks) == 2:
                self.foreign = [None]

        async def read(self: Any) -> Any:
            clock.advance(FREE_S / 2)
            await asyncio.sleep(0)
            clock.advance(FREE_S / 2 + 0.25)
            self.foreign = []
            return self.response()

        for name in ("collect", "_collect_again"):
            monkeypatch.setattr(fetch_handler._Fetch, name, finds_what_is_stored)
        monkeypatch.setattr(fetch_handler._Fetch, "read_later", read)
        asked = fetch()
        asked.max_wait_ms = 60_000
        one.feed(request(fetch_codec, 12, asked))
        clock.advance(61)
        clock.advance(1_000)  # others have their turn before it reads
        for _ in range(5):
            await asyncio.sleep(0)
        assert len(looks) == 2
        answer = asking.load(fetch_codec.API_KEY).decode_response(12, memoryview(bytes(one.peer.bytes[9:])))
        assert answer.throttle_time_ms == 500
        one.session.closed()

    with_broker(scenario)


def test_what_is_not_limited_is_not_measured(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one, clock = timed(client)
        contexts = []

        def handle(context: Any, asked: Any) -> HeartbeatResponse:
            contexts.append(context)
            clock.advance(1000)
            return HeartbeatResponse()

        handled(one, handle)
        assert await alter(client, entry([("client-id", "other")], request_percentage=0.001)) == [0]
        one.feed(beat_once())
        assert await told(one) == [0]
        assert not contexts[0].meter.is_timed()
        one.session.closed()

    with_broker(scenario)
