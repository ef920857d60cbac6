"""A session as its peer sees it: order, pauses, the end.  Handlers are replaced by ones that the test resolves."""

import asyncio
import gc
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from magnetar.protocols.kafka import session as session_module
from magnetar.protocols.kafka.registry import Deferred
from magnetar.protocols.kafka.session import KafkaSession
from magnetar.protocols.kafka.slot import Slot
from magnetar.wire.kafka.header import decode_response_header, encode_request_header
from magnetar.wire.kafka.messages import api_versions, asking, heartbeat, produce
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from magnetar.wire.kafka.messages.produce import ProduceRequest
from magnetar.wire.kafka.runtime import Buffer

Run = Callable[..., None]


class Peer:
    def __init__(self) -> None:
        self.bytes = bytearray()
        self.reading = True
        self.closed = False
        self.hung_up = False

    def send(self, parts: list[Buffer]) -> None:
        assert not self.closed, "nothing is sent on a closed connection"
        for part in parts:
            self.bytes += part

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def has_hung_up(self) -> bool:
        return self.hung_up

    def close(self) -> None:
        self.closed = True

    def answered(self) -> list[int]:
        """The correlation ids of the responses so far, in order."""
        ids, view = [], memoryview(self.bytes)
        while len(view):
            (size,) = struct.unpack_from(">i", view)
            ids.append(decode_response_header(view[4 : 4 + size], heartbeat.API_KEY, 0)[0])
            view = view[4 + size :]
        return ids


def request(codec: Any, version: int, body: Any, correlation_id: int = 7) -> bytes:
    parts: list[Buffer] = [encode_request_header(codec.API_KEY, version, correlation_id, "test")]
    asking.load(codec.API_KEY).encode_request(version, body, parts)
    joined = b"".join(parts)
    return struct.pack(">i", len(joined)) + joined


def beat(correlation_id: int) -> bytes:
    return request(heartbeat, 0, HeartbeatRequest("g", 0, "m"), correlation_id)


class Answer(Deferred):
    """One that lets the requests behind it pass, as Produce's does."""

    mutes = False


class Fixture:
    """A session whose heartbeats the test answers."""

    def __init__(self, client: Any, answer: type[Deferred] = Answer) -> None:
        self.service = client.service
        self.answer = answer
        self.waiting: list[Deferred] = []
        api = self.service.apis[heartbeat.API_KEY]
        self.service.apis[heartbeat.API_KEY] = replace(api, handle=self.handle)
        self.peer, self.session = self.connect(client)

    def connect(self, client: Any) -> tuple[Peer, Any]:
        peer = Peer()
        node = next(iter(client.broker.nodes.by_id.values()))
        session = KafkaSession(self.service, peer, node, "PLAINTEXT", 1, "127.0.0.1", "127.0.0.1")
        session.intake.monotonic = lambda: 0.0  # turns have no end, however busy the machine is
        return peer, session

    def handle(self, context: Any, asked: Any) -> Any:
        self.waiting.append(self.answer())
        return self.waiting[-1]

    def feed(self, data: bytes, step: int = 1 << 20) -> None:
        view = memoryview(data)
        while len(view):
            buffer = self.session.get_buffer()
            count = min(len(buffer), step, len(view))
            buffer[:count] = view[:count]
            self.session.received(count)
            view = view[count:]

    async def resolve(self, index: int) -> None:
        self.waiting[index].resolve(HeartbeatResponse())
        await asyncio.sleep(0)
        await asyncio.sleep(0)


@pytest.mark.parametrize("step", [1, 3, 7, 50, 1 << 20])
def test_responses_leave_in_the_order_of_requests_however_bytes_and_answers_come(
    with_broker: Run, step: int
) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(b"".join(beat(number) for number in range(6)), step)
        assert len(one.waiting) == 6
        for index, expected in [(3, []), (1, []), (0, [0, 1]), (5, [0, 1]), (2, [0, 1, 2, 3])]:
            await one.resolve(index)
            assert one.peer.answered() == expected
        await one.resolve(4)
        assert one.peer.answered() == [0, 1, 2, 3, 4, 5]
        one.session.closed()

    with_broker(scenario)


def test_an_answered_request_is_freed_without_the_cycle_collector(with_broker: Run) -> None:
    # A cycle per request cost a third of the server's time: every request was left to the collector.
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(b"".join(beat(number) for number in range(20)))
        for index in range(20):
            await one.resolve(index)
        one.waiting.clear()
        # By type, as `isinstance` asks a weak proxy for what it stands for, which may be gone.
        kept = [found for found in gc.get_objects() if type(found) in (Answer, Slot)]
        assert kept == []
        one.session.closed()

    gc.collect()
    gc.disable()
    try:
        with_broker(scenario)
    finally:
        gc.enable()


def test_a_produce_without_acks_has_no_place_among_the_responses(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(beat(1) + request(produce, 9, ProduceRequest(acks=0), 2) + beat(3))
        await one.resolve(1)
        await one.resolve(0)
        assert one.peer.answered() == [1, 3]
        assert one.service.queued_bytes == 0
        one.session.closed()

    with_broker(scenario)


def test_reading_pauses_while_too_much_is_unanswered_and_goes_on_afterwards(
    with_broker: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "UNANSWERED_REQUESTS_MAX", 4)

    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(b"".join(beat(number) for number in range(4)))
        assert one.peer.reading
        one.feed(beat(4))
        assert not one.peer.reading
        for index in range(3):
            assert not one.peer.reading
            await one.resolve(index)
        assert one.peer.reading
        one.session.closed()
        assert one.service.queued_bytes == 0

    with_broker(scenario)


def test_what_all_connections_have_unanswered_is_bounded(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(beat(1))
        one.service.memory.bytes_max = 2 * one.service.memory.used - 1
        assert one.peer.reading
        other_peer, other = one.connect(client)
        data = beat(2) + beat(3)
        other.get_buffer()[: len(data)] = data
        other.received(len(data))
        assert not other_peer.reading
        await one.resolve(0)  # of the first connection: the second one may read on when half is free
        await one.resolve(1)
        assert other_peer.reading
        assert not one.service.memory.held_count
        other.closed()
        one.session.closed()
        assert one.service.queued_bytes == one.service.memory.used == 0

    with_broker(scenario)


@pytest.mark.parametrize("is_large", [False, True])
def test_a_large_response_that_leaves_no_memory_pauses_reading_and_hurries_fetches_that_wait(
    with_broker: Run, is_large: bool
) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        response = HeartbeatResponse()
        api = one.service.apis[heartbeat.API_KEY]

        def encode(version: int, message: Any, out: list[Buffer]) -> None:
            heartbeat.encode_response(version, message, out)
            out.append(bytes(20_000 if is_large else 10))

        one.service.apis[heartbeat.API_KEY] = replace(
            api, handle=lambda context, asked: response, encode_response=encode
        )
        one.service.memory.bytes_max = 20_000
        hurried: list[bool] = []
        waiting = Deferred()
        waiting.hurry = lambda: hurried.append(one.service.fetches_waiting.pop(waiting) is None)
        one.service.fetches_waiting[waiting] = None
        one.feed(beat(1))
        assert one.peer.reading != is_large
        assert hurried == [True] * is_large
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert one.peer.reading
        one.session.closed()
        assert one.service.memory.used == 0

    with_broker(scenario)


def test_a_peer_that_does_not_take_its_responses_is_not_read_from(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.session.peer_is_slow(True)
        assert not one.peer.reading
        assert not one.service.memory.held_count, "it concerns no other session"
        one.feed(beat(1))  # was on its way already
        assert not one.waiting
        one.session.peer_is_slow(False)
        assert one.peer.reading
        await one.resolve(0)
        assert one.peer.answered() == [1]
        one.session.closed()

    with_broker(scenario)


def test_a_graceful_stop_answers_what_is_in_flight_and_closes(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        one.feed(beat(1) + beat(2))
        hurried: list[int] = []

        def hurry() -> None:
            hurried.append(1)
            one.waiting[1].resolve(HeartbeatResponse())

        one.waiting[1].hurry = hurry
        one.session.finish()
        assert hurried == [1]
        assert not one.peer.closed
        await one.resolve(0)
        assert one.peer.answered() == [1, 2]
        assert one.peer.closed
        one.session.closed()

        quiet_peer, quiet = one.connect(client)
        quiet.finish()
        assert quiet_peer.closed
        quiet.closed()

    with_broker(scenario)


def test_what_becomes_ready_after_the_connection_is_gone_goes_nowhere(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        abandoned: list[int] = []
        one.feed(beat(1) + beat(2))
        one.waiting[1].abandon = lambda: abandoned.append(2)
        one.session.closed()
        assert abandoned == [2]
        await one.resolve(0)
        assert not one.peer.bytes
        assert one.service.queued_bytes == 0

    with_broker(scenario)


@pytest.mark.parametrize("late", [False, True], ids=["stage one", "stage two"])
def test_a_bug_in_a_handler_ends_the_connection_and_no_other(
    with_broker: Run, caplog: pytest.LogCaptureFixture, late: bool
) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)

        async def fail_late() -> None:
            await asyncio.sleep(0)
            raise AssertionError("a bug")

        def fail(context: Any, asked: Any) -> Any:
            if late:
                return fail_late()
            raise AssertionError("a bug")

        api = one.service.apis[heartbeat.API_KEY]
        one.service.apis[heartbeat.API_KEY] = replace(api, handle=fail)
        other_peer, other = one.connect(client)
        one.feed(beat(1) + beat(2))
        for _ in range(5):
            await asyncio.sleep(0)
        assert one.peer.closed
        assert not one.peer.bytes, "the client gets nothing of it"
        data = request(api_versions, 0, ApiVersionsRequest(), 9)
        other.get_buffer()[: len(data)] = data
        other.received(len(data))
        await asyncio.sleep(0)
        assert other_peer.answered() == [9]
        other.closed()
        one.session.closed()

    with caplog.at_level(logging.WARNING):
        with_broker(scenario)
    assert "failed inside the broker" in caplog.text


def test_one_request_is_at_work_in_a_coroutine_at_a_time_and_the_others_keep_their_turn(
    with_broker: Run,
) -> None:
    async def scenario(client: Any) -> None:
        one = Fixture(client)
        at_work: list[asyncio.Future[HeartbeatResponse]] = []

        async def work() -> HeartbeatResponse:
            at_work.append(asyncio.get_running_loop().create_future())
            return await at_work[-1]

        api = one.service.apis[heartbeat.API_KEY]
        one.service.apis[heartbeat.API_KEY] = replace(api, handle=lambda context, asked: work())
        one.feed(beat(1) + beat(2) + beat(3) + beat(4)[:9])
        for number in range(1, 4):
            for _ in range(4):
                await asyncio.sleep(0)
            assert len(at_work) == number
            assert one.peer.reading == (number == 3), "with nothing held the next request is received"
            if number == 2:
                one.session.peer_is_slow(True)
            at_work[-1].set_result(HeartbeatResponse())
            for _ in range(4):
                await asyncio.sleep(0)
            if number == 2:
                assert len(at_work) == 2, (
                    "nothing is begun for a peer that does not take what it has asked for"
                )
                one.session.peer_is_slow(False)
            assert one.peer.answered() == list(range(1, number + 1))
        assert one.peer.reading
        one.feed(beat(4)[9:])
        await asyncio.sleep(0)
        assert len(at_work) == 4
        one.feed(beat(5))
        one.session.closed()
        at_work[-1].set_result(HeartbeatResponse())
        for _ in range(4):
            await asyncio.sleep(0)
        assert len(at_work) == 4
        assert one.peer.answered() == [1, 2, 3]

    with_broker(scenario)


def test_while_a_request_waits_none_behind_it_on_the_connection_is_handled(with_broker: Run) -> None:
    # As Kafka's broker mutes a channel.  Two thousand fetches that wait would all be looked at by every append.
    async def scenario(client: Any) -> None:
        one = Fixture(client, answer=Deferred)
        one.feed(beat(1))
        assert one.peer.reading, "a client that waits for one answer is listened to: it may hang up"
        one.feed(b"".join(beat(number) for number in range(2, 5)))
        assert not one.peer.reading, "who sends on is not read from"
        for number in range(1, 5):
            assert len(one.waiting) == number
            await one.resolve(number - 1)
            assert one.peer.answered() == list(range(1, number + 1))
        assert one.peer.reading
        one.feed(beat(5))
        assert len(one.waiting) == 5
        one.session.closed()
        assert one.service.queued_bytes == 0

    with_broker(scenario)
