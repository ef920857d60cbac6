"""Hostile clients at every port, beside a normal one that is timed.

    python -m tests.soak.hostile --minutes 60 --seed 1

A server with small limits serves one client that produces and fetches at an even pace: first alone, then beside clients
that send batches which expand a thousandfold, announce what they never send, ask (or subscribe) and do not read, wait
in fetches by the thousand, name a topic two hundred thousand times, sit on idle sockets, invent names, and send bytes
at random.
Hostile clients would be on machines of their own: here they get what the server and the normal client leave of the
processor (`SCHED_IDLE`), and the normal client, where that is permitted, gets it at once (`SCHED_FIFO`).

Reported each minute and at the end: the normal client's p99 alone and beside them, how long `/health` took, and the
server's memory; and at once, what took the normal client half a second or more, and `/health` 100 ms, with what the
server logged last.  Beside that stands what no server could have made shorter: the longest time for which a process
that asks for nothing but to be woken, before all others, was not.  The server's own longest turn is at the end.

It fails when the server ends, logs a traceback, stops answering the normal client or `/health`, takes more memory than
its limits and what is beside them (`MEMORY_BYTES_MAX`), or does not end on SIGTERM while they go on.
"""

import contextlib
import gzip
import http.client
import multiprocessing
import multiprocessing.sharedctypes
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from crc32c import crc32c

from magnetar.testing.pulsar import framed
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from magnetar.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from magnetar.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from magnetar.wire.pulsar.PulsarApi_pb2 import CommandConnect, CommandFlow, CommandSubscribe
from tests.integration.server.wire import (
    Wire,
    fetch_request,
    frame,
    produce_request,
    record_batch,
    resident_bytes,
)
from tests.soak import part

MIB = 1 << 20
LIMIT_BYTES = 64 * MIB
CACHE_BYTES = 32 * MIB
PRODUCERS = 20_000
PRODUCER_BYTES = 1_250  # what a partition keeps of each, and its transactional id
HEADROOM_BYTES = 400 * MIB  # the program itself, what is being expanded, what the allocator keeps
MEMORY_BYTES_MAX = LIMIT_BYTES + CACHE_BYTES + PRODUCERS * PRODUCER_BYTES + HEADROOM_BYTES
SETTINGS = {
    "queued.max.request.bytes": str(LIMIT_BYTES),
    "entry.cache.bytes": str(CACHE_BYTES),
    "journal.bytes": str(64 * MIB),
    "max.concurrent.producer.ids": str(PRODUCERS),
    "max.transactions.per.coordinator": str(PRODUCERS),
}
NORMAL_PACE_S = 0.01
HEALTH_PACE_S = 0.25
HEALTH_TIMEOUT_S = 10.0
REPORT_S = 60.0
SLOW_S = 0.5
SLOW_HEALTH_S = 0.1
WAKE_PACE_S = 0.005
LONGEST_TURN = "magnetar_loop_stall_longest_seconds"
ATTACKERS = 2
HELD_MAX = 30  # sockets that one kind of hostile client holds
TOPIC = "normal"
TARGET = "target"
BACKLOG = "backlog"  # as much as fills the memory of answers that are not read
BACKLOG_BATCHES = 40
BACKLOG_BATCH_BYTES = 1_000_000


class Broken(Exception):
    """One line."""


@dataclass
class Seen:
    """What was measured; one list for the time alone and one for the time beside hostile clients."""

    produce_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    health_s: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    resident: int = 0  # at most
    failures: list[str] = field(default_factory=list)


def p99(values: list[float]) -> float:
    return sorted(values)[len(values) * 99 // 100] if values else 0.0


def milliseconds(values: list[float]) -> str:
    return f"p99 {p99(values) * 1000:.1f} ms, {max(values, default=0.0) * 1000:.0f} at most"


def bomb(count: int) -> bytes:
    """A gzip batch of `count` empty records, a few bytes for a thousand."""
    record = b"\x0e\0\0\0\x01\0\0\0"  # length 7, attributes, deltas of 0, null key, empty value, no headers
    packed = gzip.compress(record * count, 9)
    now = round(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 1, count - 1, now, now, -1, -1, -1, count) + packed
    return struct.pack(">qiibI", 0, len(checked) + 9, -1, 2, crc32c(checked)) + checked


@dataclass(frozen=True)
class Ports:
    kafka: int
    pulsar: int
    http: int


class Hostile:
    """The clients; each method is one act of one of them and may end with any error of a socket."""

    def __init__(self, ports: Ports, choose: random.Random) -> None:
        self._ports = ports
        self._choose = choose
        self._held: dict[str, list[socket.socket]] = {}
        self._bomb = bomb(1_000_000)
        self._names = frame("metadata", 9, MetadataRequest([MetadataRequestTopic(name=TOPIC)] * 200_000))

    def acts(self) -> list[Callable[[], None]]:
        return [
            self.expand,
            self.announce,
            self.ask_and_not_read,
            self.subscribe_and_not_read,
            self.wait_in_fetches,
            self.repeat_names,
            self.idle,
            self.invent_names,
            self.babble,
            self.trickle,
        ]

    def expand(self) -> None:
        with self._wire() as wire:
            wire.produce(TARGET, self._bomb)
            wire.offset_of(TARGET, round(time.time() * 1000) - 10)

    def announce(self) -> None:
        port = self._choose.choice((self._ports.kafka, self._ports.pulsar))
        one = self._hold("announce", self._connect(port))
        one.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            one.send(struct.pack(">i", 4 * MIB) + bytes(3 * MIB))

    def ask_and_not_read(self) -> None:
        lazy = self._hold("lazy", self._wire(receive_buffer=4096).socket)
        lazy.sendall(frame("fetch", 12, fetch_request(BACKLOG, 0)) * 5)

    def subscribe_and_not_read(self) -> None:
        lazy = self._hold("subscribed", self._connect(self._ports.pulsar, receive_buffer=4096))
        subscribe = CommandSubscribe(
            topic=f"persistent://public/default/{BACKLOG}-partition-0",
            subscription=os.urandom(8).hex(),
            subType=CommandSubscribe.Exclusive,
            consumer_id=1,
            request_id=1,
            durable=False,
            initialPosition=CommandSubscribe.Earliest,
        )
        lazy.sendall(framed(CommandConnect(client_version="test", protocol_version=21)) + framed(subscribe))
        with lazy.makefile("rb") as answers:
            for _ in range(2):
                answers.read(*struct.unpack(">I", answers.read(4)))
        lazy.sendall(framed(CommandFlow(consumer_id=1, messagePermits=1000)))

    def wait_in_fetches(self) -> None:
        waiting = self._hold("waiting", self._wire().socket)
        waiting.sendall(
            frame("fetch", 12, fetch_request(TOPIC, 0, max_wait_ms=1 << 30, min_bytes=1 << 30)) * 1000
        )

    def repeat_names(self) -> None:
        self._hold("names", self._wire().socket).sendall(self._names)

    def idle(self) -> None:
        ports = (self._ports.kafka, self._ports.pulsar, self._ports.http)
        self._hold("idle", self._connect(self._choose.choice(ports)))

    def invent_names(self) -> None:
        with self._wire() as wire:
            for _ in range(20):
                name = os.urandom(8).hex()
                wire.ask("find_coordinator", 3, FindCoordinatorRequest(name, 0))
                wire.ask("init_producer_id", 4, InitProducerIdRequest(name, 60_000, -1, -1))
                wire.produce(TARGET, record_batch([b"x"], producer=(self._choose.randrange(1 << 40), 0, 0)))

    def babble(self) -> None:
        ports = (self._ports.kafka, self._ports.pulsar, self._ports.http)
        with contextlib.closing(self._connect(self._choose.choice(ports))) as one:
            one.sendall(self._choose.randbytes(self._choose.randrange(1, 5000)))

    def trickle(self) -> None:
        one = self._hold("trickle", self._connect(self._ports.http))
        one.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Slow: ")

    def _wire(self, *, receive_buffer: int | None = None) -> Wire:
        """A connection to Kafka's port that is let in."""
        return Wire(self._ports.kafka, receive_buffer=receive_buffer)

    def _connect(self, port: int, *, receive_buffer: int | None = None) -> socket.socket:
        one = socket.socket()
        if receive_buffer is not None:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        one.settimeout(30)
        one.connect(("127.0.0.1", port))
        return one

    def _hold(self, kind: str, one: socket.socket) -> socket.socket:
        held = self._held.setdefault(kind, [])
        held.append(one)
        if len(held) > HELD_MAX:
            held.pop(self._choose.randrange(len(held))).close()
        return one


class Trial:
    def __init__(self, server: MagnetarProcess, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._seen = Seen()
        self._beside = 0
        self._began = time.monotonic()
        self._over = threading.Event()
        self._longest_pause_s = multiprocessing.get_context("spawn").Value("d")

    def run(self, quiet_s: float, hostile_s: float) -> str:
        """The closing line; raises `Broken`, and `ServerFailed` when SIGTERM does not end the server."""
        with Wire(self._server.ports[0]) as wire:
            for topic in (TOPIC, TARGET, BACKLOG):
                wire.create(topic)
            for _ in range(BACKLOG_BATCHES):
                wire.produce(BACKLOG, record_batch([os.urandom(BACKLOG_BATCH_BYTES)]))
        watchers = [threading.Thread(target=each) for each in (self._produce, self._ask_health, self._weigh)]
        ports = Ports(self._server.ports[0], self._server.pulsar_port, self._server.http_port)
        # In processes of their own, so that the normal client waits for the server alone.
        spawn = multiprocessing.get_context("spawn")
        attackers = [
            spawn.Process(target=attack, args=(ports, f"{self._seed} {number}"), daemon=True)
            for number in range(ATTACKERS)
        ]
        pauses = spawn.Process(target=watch_machine, args=(self._longest_pause_s,), daemon=True)
        for thread in watchers:
            thread.start()
        try:
            pauses.start()
            self._over.wait(quiet_s)
            self._beside = 1
            for process in attackers:
                process.start()
            self._over.wait(hostile_s)
            self._over.set()
            for thread in watchers:
                thread.join()
            said = f"{self._judge()}; {self._held_s() * 1000:.0f} ms for its longest turn"
            self._server.terminate()
            self._look_for_traceback()
            return said
        finally:
            self._over.set()
            for process in (pauses, *attackers):
                if process.pid is not None:
                    process.kill()
                    process.join()

    def _judge(self) -> str:
        seen = self._seen
        if not self._server.running:
            raise Broken(f"the server ended: {self._server.log[-500:]}")
        self._look_for_traceback()
        if seen.failures:
            raise Broken(seen.failures[0])
        most = f"{MEMORY_BYTES_MAX / MIB:.0f}"
        if seen.resident > MEMORY_BYTES_MAX:
            raise Broken(f"{seen.resident / MIB:.0f} MiB are resident, the limits come to {most}")
        (quiet, beside), (health_quiet, health) = seen.produce_s, seen.health_s
        return (
            f"produce and fetch: {milliseconds(quiet)} alone; {milliseconds(beside)} beside hostile clients"
            f" ({p99(beside) / p99(quiet):.1f} times); /health: {milliseconds(health_quiet)} alone,"
            f" {milliseconds(health)} beside them; {seen.resident / MIB:.0f} MiB resident at most of"
            f" {most}; {self._pause()}; no traceback"
        )

    def _pause(self) -> str:
        return f"the machine paused for {self._longest_pause_s.value * 1000:.0f} ms at most"

    def _held_s(self) -> float:
        """The longest wait of work for the server's event loop, by its own measure."""
        connection = http.client.HTTPConnection("127.0.0.1", self._server.http_port, timeout=HEALTH_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{LONGEST_TURN} "))

    def _look_for_traceback(self) -> None:
        log = self._server.log
        if "Traceback" in log:
            raise Broken(f"a traceback: {log[log.index('Traceback') :][:800]}")

    def _produce(self) -> None:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # of this thread
        offset = 0
        try:
            with Wire(self._server.ports[0]) as wire:
                while not self._over.wait(NORMAL_PACE_S):
                    began = time.monotonic()
                    answer = wire.ask("produce", 9, produce_request(TOPIC, record_batch([bytes(1000)])))
                    produced = time.monotonic()
                    row = answer.responses[0].partition_responses[0]
                    if (row.error_code, row.base_offset) != (0, offset):
                        raise Broken(f"error {row.error_code}, offset {row.base_offset} for {offset}")
                    wire.fetch(TOPIC, offset)
                    fetched = time.monotonic()
                    offset += 1
                    self._seen.produce_s[self._beside].append(fetched - began)
                    if fetched - began >= SLOW_S:
                        self._tell(f"produce {produced - began:.2f} s, fetch {fetched - produced:.2f} s")
        except Exception as error:  # noqa: BLE001 - whatever it was, the normal client was not served
            self._seen.failures.append(f"the normal client: {type(error).__name__}: {error}")
            self._over.set()

    def _tell(self, what: str) -> None:
        last = self._server.log.splitlines()[-1:]
        print(
            f"{(time.monotonic() - self._began) / 60:5.1f} min: {what}; {self._pause()} until now;"
            f" the server's last line: {last}",
            flush=True,
        )

    def _ask_health(self) -> None:
        while not self._over.wait(HEALTH_PACE_S):
            began = time.monotonic()
            connection = http.client.HTTPConnection(
                "127.0.0.1", self._server.http_port, timeout=HEALTH_TIMEOUT_S
            )
            try:
                connection.request("GET", "/health")
                status = connection.getresponse().status
                if status != 200:
                    self._seen.failures.append(f"/health was answered with {status}")
            except OSError as error:
                self._seen.failures.append(f"/health was not answered: {error}")
            finally:
                connection.close()
            took_s = time.monotonic() - began
            self._seen.health_s[self._beside].append(took_s)
            if took_s > SLOW_HEALTH_S:
                self._tell(f"/health {took_s * 1000:.0f} ms")

    def _weigh(self) -> None:
        reported = time.monotonic()
        told = [[0, 0], [0, 0]]  # how many values, alone and beside
        while not self._over.wait(0.2):
            if not self._server.running:
                continue
            resident = resident_bytes(self._server)
            self._seen.resident = max(self._seen.resident, resident)
            if time.monotonic() - reported >= REPORT_S:
                reported = time.monotonic()
                before = told[self._beside]
                produced = self._seen.produce_s[self._beside][before[0] :]
                health = self._seen.health_s[self._beside][before[1] :]
                told[self._beside] = [before[0] + len(produced), before[1] + len(health)]
                print(
                    f"{(reported - self._began) / 60:3.0f} min {'beside' if self._beside else 'alone '}"
                    f" {resident / MIB:4.0f} MiB; lately: produce and fetch {milliseconds(produced)};"
                    f" /health {milliseconds(health)}; {self._pause()}",
                    flush=True,
                )


def watch_machine(longest_s: "multiprocessing.sharedctypes.Synchronized[float]") -> None:
    """Note how late it is woken at most, until the run ends."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))  # before the normal client
    parent = os.getppid()
    while os.getppid() == parent:
        began = time.monotonic()
        time.sleep(WAKE_PACE_S)
        longest_s.value = max(longest_s.value, time.monotonic() - began - WAKE_PACE_S)


def attack(ports: Ports, seed: str) -> None:
    choose = random.Random(seed)
    act_without_end(Hostile(ports, choose).acts(), choose)


def act_without_end(acts: list[Callable[[], None]], choose: random.Random) -> None:
    """One act after the other until the run ends, with what the server and the normal client leave of the processor."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    parent = os.getppid()
    while os.getppid() == parent:  # a killed run leaves none behind
        # That it is cut off, or told nothing, is what a hostile client must expect.
        with contextlib.suppress(OSError, AssertionError, struct.error):
            choose.choice(acts)()


def run(minutes: float, seed: int) -> str:
    with MagnetarProcess(settings=SETTINGS) as server:
        return Trial(server, seed).run(minutes * 6, minutes * 54)


if __name__ == "__main__":
    raise SystemExit(
        part.main(
            "tests.soak.hostile", __doc__, {"minutes": 60.0}, lambda options, seed: run(options.minutes, seed)
        )
    )
