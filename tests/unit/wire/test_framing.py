"""Frames out of a byte stream, however it is cut."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.errors import WireError
from magnetar.wire.framing import SCRATCH_BYTES, SHORT_RECEIVE_BYTES, SMALL_FRAME_BYTES_MAX, FrameReader

LIMIT = 300_000


def reader(scratch_bytes: int = SCRATCH_BYTES) -> FrameReader:
    return FrameReader(
        memoryview(bytearray(scratch_bytes)),
        lambda size: memoryview(bytearray(size)),
        LIMIT,
        lambda size: True,
    )


def feed(frames: FrameReader, data: bytes, step: int) -> list[bytes]:
    found: list[bytes] = []
    view = memoryview(data)
    while len(view):
        buffer = frames.get_buffer()
        assert len(buffer), "there is always room for the next byte"
        count = min(step, len(buffer), len(view))
        buffer[:count] = view[:count]
        found += [bytes(frame.data) for frame in frames.received(count)]
        view = view[count:]
    return found


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(
    sizes=st.lists(
        st.sampled_from([1, 2, 3, 5, 60, 63, 64, 65, 1000, 16 * 1024, 16 * 1024 + 1, 70_000]), max_size=8
    ),
    step=st.sampled_from([1, 2, 3, 4, 5, 7, 64, 1000, 1 << 20]),
    scratch=st.sampled_from([64, 4096, SCRATCH_BYTES]),
)
def test_the_frames_are_those_that_were_sent(sizes: list[int], step: int, scratch: int) -> None:
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    if step < 5:
        bodies = [body for body in bodies if len(body) < 2000]
    assert feed(reader(scratch), b"".join(map(framed, bodies)), step) == bodies


def test_large_frames_have_memory_of_their_own_and_small_ones_are_borrowed() -> None:
    frames = reader()
    data = framed(b"small")
    frames.get_buffer()[: len(data)] = data
    (small,) = frames.received(len(data))
    assert not small.owned
    large = framed(bytes(SMALL_FRAME_BYTES_MAX * 5))
    frames.get_buffer()[:100] = large[:100]
    assert frames.received(100) == []
    rest = frames.get_buffer()
    assert len(rest) == len(large) - 100
    (whole,) = frames.received(len(rest))
    assert whole.owned
    assert len(whole.data) == len(large) - 4


def test_of_a_frame_behind_a_large_one_only_the_beginning_is_copied() -> None:
    frames = reader()
    assert len(frames.get_buffer()) == SCRATCH_BYTES
    feed(frames, framed(bytes(SCRATCH_BYTES + 1)), LIMIT)
    assert len(frames.get_buffer()) == SHORT_RECEIVE_BYTES
    feed(frames, framed(bytes(SCRATCH_BYTES * 2)), LIMIT)
    assert len(frames.get_buffer()) == SHORT_RECEIVE_BYTES
    feed(frames, framed(bytes(SHORT_RECEIVE_BYTES)), LIMIT)
    assert len(frames.get_buffer()) == SCRATCH_BYTES, "small ones are received together again"


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
@pytest.mark.parametrize("step", [1, 4, 100])
def test_an_impossible_size_ends_the_stream(size: int, step: int) -> None:
    with pytest.raises(WireError):
        feed(reader(), struct.pack(">i", size) + b"rest", step)


def test_the_largest_frame_is_taken() -> None:
    assert [len(body) for body in feed(reader(), framed(bytes(LIMIT)), 50_000)] == [LIMIT]
