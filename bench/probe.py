"""Is a server serving?  One Metadata v4 request on a fresh connection, packed by hand.

A client library would add its own start-up and retry delays to what is timed here.  Layout: the Kafka protocol guide,
request header v1, Metadata v4 (not flexible), big-endian.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.process import RunFailed

METADATA = 3
VERSION = 4
FRAME_BYTES_MAX = 64 * 1024 * 1024
POLL_SECONDS = 0.01


@dataclass(frozen=True)
class Answer:
    """What a Metadata response says.  `topics_serving`: no error, and every partition has a leader."""

    brokers: int
    topics: int
    topics_serving: int


def request(*, all_topics: bool) -> bytes:
    """One framed request for the brokers, and for every topic or none."""
    client = b"bench"
    body = struct.pack(f">hhih{len(client)}s", METADATA, VERSION, 1, len(client), client)
    body += struct.pack(">i?", -1 if all_topics else 0, False)  # null = every topic; never create one
    return struct.pack(">i", len(body)) + body


def parse(frame: bytes) -> Answer:
    """A response without its length prefix; raises ValueError on anything that is not one."""
    cursor = _Cursor(frame)
    cursor.skip(4 + 4)  # correlation id, throttle time
    brokers = cursor.count()
    for _ in range(brokers):
        cursor.skip(4)
        cursor.string()
        cursor.skip(4)
        cursor.string()
    cursor.string()
    cursor.skip(4)
    topics = cursor.count()
    serving = 0
    for _ in range(topics):
        healthy = cursor.int16() == 0
        cursor.string()
        cursor.skip(1)
        for _ in range(cursor.count()):
            healthy &= cursor.int16() == 0
            cursor.skip(4)
            healthy &= cursor.int32() >= 0  # the leader
            cursor.skip(4 * cursor.count())
            cursor.skip(4 * cursor.count())
        serving += healthy
    return Answer(brokers, topics, serving)


def ask(host: str, port: int, *, all_topics: bool = False, timeout: float = 5.0) -> Answer:
    """Raises OSError or ValueError while the server is not there yet."""
    with socket.create_connection((host, port), timeout=timeout) as connection:
        connection.sendall(request(all_topics=all_topics))
        (length,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 < length <= FRAME_BYTES_MAX:
            raise ValueError(f"a Metadata response of {length} bytes")
        return parse(_receive(connection, length))


def wait_until(
    host: str,
    port: int,
    enough: Callable[[Answer], bool],
    *,
    seconds_max: float,
    alive: Callable[[], bool],
    all_topics: bool = False,
) -> float:
    """When `enough` was first true, on CLOCK_BOOTTIME; raises RunFailed when the server ends or takes too long."""
    deadline = time.monotonic() + seconds_max
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if enough(ask(host, port, all_topics=all_topics)):
                return time.clock_gettime(time.CLOCK_BOOTTIME)
        if not alive():
            raise RunFailed("the server ended before it was ready")
        time.sleep(POLL_SECONDS)
    raise RunFailed(f"the server was not ready within {seconds_max:.0f} s")


def _receive(connection: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        chunk = connection.recv(min(count - len(data), 1 << 20))
        if not chunk:
            raise ConnectionError("the server closed the connection")
        data += chunk
    return bytes(data)


class _Cursor:
    """Reads big-endian fields; ValueError where the frame is too short."""

    def __init__(self, frame: bytes) -> None:
        self.frame = frame
        self.position = 0

    def skip(self, count: int) -> int:
        """Steps over `count` bytes and returns where they began."""
        begin = self.position
        if count < 0 or begin + count > len(self.frame):
            raise ValueError("the response is cut short")
        self.position = begin + count
        return begin

    def int16(self) -> int:
        return int(struct.unpack_from(">h", self.frame, self.skip(2))[0])

    def int32(self) -> int:
        return int(struct.unpack_from(">i", self.frame, self.skip(4))[0])

    def count(self) -> int:
        return max(self.int32(), 0)  # a null array is an empty one

    def string(self) -> None:
        self.skip(max(self.int16(), 0))
