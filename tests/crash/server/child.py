"""What the loads under a server that is being killed have in common; each is a process of its own.

A load writes numbered payloads to every partition and never gives up.  Its events go to standard output, one JSON
object a line, each after the broker has acknowledged it:

    {"acks": [[partition, number, ...], ...]}        records; what follows the number is the load's own
    {"broken": "..."}                                something that must never happen

Commands come on standard input, one word a line, and are answered with `{"done": word}`: `mark` at once, `pause`
when nothing is written any more and everything written is acknowledged, `resume`, `stop`.
"""

import json
import random
import sys
import threading
import time
import zlib
from abc import ABC, abstractmethod
from typing import Any

OUTSTANDING_MAX = 400  # what is in flight when the server dies
DRAIN_TIMEOUT_S = 60.0
POLL_S = 0.01
_OUTPUT = threading.Lock()


def say(**event: Any) -> None:
    line = json.dumps(event, separators=(",", ":"))
    with _OUTPUT:
        print(line, flush=True)


def payload(partition: int, number: int, source: random.Random, large_every: int) -> bytes:
    """`crc32 partition number padding`: says which record it is and whether it is whole.

    One in `large_every` is 64 KiB to 512 KiB.
    """
    large = source.randrange(large_every) == 0
    padding = source.randbytes(source.randrange(64 << 10, 512 << 10) if large else source.randrange(1, 1024))
    body = b"%d %d " % (partition, number) + padding
    return b"%08x " % zlib.crc32(body) + body


def numbers_of(data: bytes) -> tuple[int, int]:
    """Partition and number of a payload; `ValueError` if it is not whole."""
    crc, _, body = data.partition(b" ")
    if crc != b"%08x" % zlib.crc32(body):
        raise ValueError(f"a payload of {len(data)} bytes is damaged")
    partition, number = body.split(b" ", 2)[:2]
    return int(partition), int(number)


class Writer(threading.Thread, ABC):
    """Writes at a steady rate while it is wanted, and says what is acknowledged."""

    def __init__(self, partitions: int, seed: int, per_second: int, large_every: int) -> None:
        super().__init__(daemon=True)
        self._numbers = [0] * partitions
        self._random = random.Random(seed)
        self._per_second = per_second
        self._large_every = large_every
        self._lock = threading.Lock()  # acknowledgements may come on a thread of the client
        self._acks: list[tuple[int, ...]] = []
        self._outstanding = 0
        self._wanted = threading.Event()
        self._wanted.set()
        self._idle = threading.Event()

    @abstractmethod
    def send(self, partition: int, number: int, value: bytes) -> None:
        """Give it to the client, which calls `acknowledged` or `given_up` in the end."""

    @abstractmethod
    def work(self, seconds: float) -> None:
        """Let the client get on for that long."""

    def acknowledged(self, *ack: int) -> None:
        with self._lock:
            self._outstanding -= 1
            self._acks.append(ack)

    def given_up(self, partition: int, number: int, why: object) -> None:
        with self._lock:
            self._outstanding -= 1
        say(broken=f"record {number} of partition {partition} was given up: {why}")

    def run(self) -> None:
        allowance, then = 0.0, time.monotonic()
        while True:
            if not self._wanted.is_set():
                self._drain()
                self._idle.set()
                self._wanted.wait()
                then = time.monotonic()
            now = time.monotonic()
            allowance = min(allowance + (now - then) * self._per_second, OUTSTANDING_MAX)
            then = now
            while allowance >= 1 and self._outstanding < OUTSTANDING_MAX:
                self._write()
                allowance -= 1
            self.work(POLL_S)
            self._report()

    def obey(self) -> None:
        """Do what standard input says until it says `stop` or ends."""
        for line in sys.stdin:
            word = line.strip()
            match word:
                case "pause":
                    self._idle.clear()
                    self._wanted.clear()
                    self._idle.wait()
                case "resume":
                    self._wanted.set()
            say(done=word)
            if word == "stop":
                return

    def _write(self) -> None:
        partition = self._random.randrange(len(self._numbers))
        number = self._numbers[partition]
        value = payload(partition, number, self._random, self._large_every)
        self._numbers[partition] += 1
        with self._lock:
            self._outstanding += 1
        self.send(partition, number, value)

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_TIMEOUT_S
        while self._outstanding and time.monotonic() < deadline:
            self.work(POLL_S)
            self._report()
        self._report()
        if self._outstanding:
            say(
                broken=f"{self._outstanding} records are not acknowledged {DRAIN_TIMEOUT_S:g} s after a restart"
            )

    def _report(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
        if acks:
            say(acks=acks)
