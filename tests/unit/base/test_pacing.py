"""Work on a thread rests, nothing of it is left out, and no other thread notices."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from magnetar.base import pacing
from magnetar.base.pacing import Pace, paced
from magnetar.wire.kafka.messages import metadata, offset_fetch
from magnetar.wire.kafka.messages.asking import metadata as ask_metadata
from magnetar.wire.kafka.messages.asking import offset_fetch as ask_offset_fetch
from magnetar.wire.kafka.runtime import Buffer


class _CountedPace(Pace):
    """Time passes only while it rests."""

    def __init__(self, step_s: float) -> None:
        self.now_s = 0.0
        self.looks = 0
        self.step_s = step_s
        super().__init__(self._time)

    def _time(self) -> float:
        return self.now_s

    def rest_if_due(self) -> None:
        self.looks += 1
        self.now_s += self.step_s
        super().rest_if_due()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long was rested, each time."""
    found: list[float] = []
    wait = threading.Event.wait

    def counted(self: threading.Event, timeout: float | None = None) -> bool:
        if timeout == pacing.REST_S:
            found.append(timeout)
            return True
        return wait(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", counted)
    return found


def _on_thread(pace: Pace, work: Callable[[], object]) -> object:
    with ThreadPoolExecutor(1, initializer=pace.enter) as thread:
        return thread.submit(work).result()


def test_elsewhere_the_elements_are_what_is_given_back(waits: list[float]) -> None:
    elements = list(range(1000))
    _on_thread(_CountedPace(1.0), lambda: None)
    assert paced(elements) is elements
    assert waits == []


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 64, 1000])
def test_on_its_thread_each_element_comes_once_and_in_order(count: int, waits: list[float]) -> None:
    pace = _CountedPace(pacing.WORK_S)
    assert _on_thread(pace, lambda: list(paced(range(count)))) == list(range(count))
    assert len(waits) == pace.looks == -(-count // 32)


def test_it_rests_when_it_has_worked_for_long_enough_and_not_before(waits: list[float]) -> None:
    pace = _CountedPace(pacing.WORK_S / 3.5)
    _on_thread(pace, lambda: list(paced(range(32 * 41))))
    assert len(waits) == 11  # at the first look, and at every fourth after that


def test_what_is_in_a_hurry_waits_for_nothing() -> None:
    pace = _CountedPace(1.0)
    pace.hurry()
    assert _on_thread(pace, lambda: pace._hurry.wait(60)) is True
    assert _on_thread(pace, lambda: len(list(paced(range(100_000))))) == 100_000


@pytest.mark.parametrize("version", [0, 9, 12])
def test_large_messages_are_read_and_written_with_rests_as_without(version: int, waits: list[float]) -> None:
    names = [metadata.MetadataRequestTopic(name=f"t{number}") for number in range(700)]
    request = metadata.MetadataRequest(names, allow_auto_topic_creation=version > 3)
    topics = [
        metadata.MetadataResponseTopic(name=f"t{number}", partitions=[metadata.MetadataResponsePartition()])
        for number in range(700)
    ]
    response = metadata.MetadataResponse(topics=topics)

    def written() -> tuple[bytes, bytes]:
        asked: list[Buffer] = []
        answered: list[Buffer] = []
        ask_metadata.encode_request(version, request, asked)
        metadata.encode_response(version, response, answered)
        return b"".join(asked), b"".join(answered)

    plain = written()
    pace = _CountedPace(pacing.WORK_S)
    assert _on_thread(pace, written) == plain
    assert pace.looks == 2 * 22
    found = _on_thread(pace, lambda: metadata.decode_request(version, memoryview(plain[0])))
    assert found == metadata.decode_request(version, memoryview(plain[0]))
    assert pace.looks == 3 * 22


def test_an_array_of_another_one_s_elements_rests_too(waits: list[float]) -> None:
    topics = [
        offset_fetch.OffsetFetchRequestTopics(f"t{number}", partition_indexes=[1]) for number in range(100)
    ]
    groups = [offset_fetch.OffsetFetchRequestGroup("g", topics=topics)]
    pace = _CountedPace(pacing.WORK_S)
    parts: list[Buffer] = []
    _on_thread(
        pace,
        lambda: ask_offset_fetch.encode_request(8, offset_fetch.OffsetFetchRequest(groups=groups), parts),
    )
    assert pace.looks == 4
