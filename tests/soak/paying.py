"""Hostile clients at every port of a guarded server, beside one that pays: what it loses of its throughput.

    python -m tests.soak.paying --minutes 30 --seed 1

The paying client is confluent-kafka's producer, logged in, which sends records of 1 KiB as fast as they are
acknowledged.  Beside it come *strangers* (they announce what they never send, guess passwords and tokens, begin TLS and
stop, trickle, babble, sit on idle sockets) and a *noisy user* who is logged in too, under client quotas: bombs, answers
that it does not read, fetches that wait by the thousand, endless names.

The paying client is alone for the first and the last twentieth of the time.  Reported are its rate alone and beside
them (medians of seconds), the server's memory, and the cores that each of them used: all run on one machine, so that
what the hostile clients' own processes take is lost to the paying one, too.

It fails when the paying client loses more than `LOSS_MAX` or gets an error, the server ends, logs a traceback, takes
more memory than its limits and `HEADROOM_BYTES`, or does not end on SIGTERM.
"""

import multiprocessing
import os
import queue
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import NamedTuple

import confluent_kafka

from bench.process import cpu_time
from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.pulsar.commands import frame_command
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandConnect
from tests.integration.sasl.guarded import Guarded
from tests.integration.server.wire import Wire, resident_bytes
from tests.soak import part
from tests.soak.hostile import (
    CACHE_BYTES,
    HEADROOM_BYTES,
    LIMIT_BYTES,
    MIB,
    SETTINGS,
    TARGET,
    Broken,
    Hostile,
    Ports,
    act_without_end,
)

LOSS_MAX = 0.1
ALONE_SHARE = 0.05  # of the time, at its beginning and again at its end
WARM_UP_S = 10.0
PAID_TOPIC = "paid"
RECORD_BYTES = 1024
ADMIN = ("admin", "admin-secret")
NOISY = ("alice", "alice-secret")
NOISY_QUOTAS = {"producer_byte_rate": 1e6, "consumer_byte_rate": 1e6, "request_percentage": 5.0}


class Stranger(Hostile):
    """Has no password."""

    def __init__(self, ports: Ports, tls_port: int, choose: random.Random) -> None:
        super().__init__(ports, choose)
        self._tls_port = tls_port

    def acts(self) -> list[Callable[[], None]]:
        return [
            self.announce,
            self.idle,
            self.babble,
            self.trickle,
            self.guess_a_password,
            self.guess_a_token,
            self.begin_tls,
        ]

    def guess_a_password(self) -> None:
        with self._wire() as wire:
            wire.log_in(self._choose.choice(("admin", "nobody")), os.urandom(6).hex())

    def guess_a_token(self) -> None:
        connect = CommandConnect(client_version="x", auth_method_name="token", auth_data=os.urandom(200))
        with self._connect(self._ports.pulsar) as one:
            one.sendall(frame_command(BaseCommand(type=BaseCommand.CONNECT, connect=connect)))
            one.recv(4096)

    def begin_tls(self) -> None:
        """A record of TLS that is never complete."""
        one = self._hold("tls", self._connect(self._tls_port))
        one.sendall(struct.pack(">BHH", 22, 0x301, 16_000) + bytes(100))


class NoisyUser(Hostile):
    """Is logged in, and held by its quotas."""

    def acts(self) -> list[Callable[[], None]]:
        return [
            self.expand,
            self.ask_and_not_read,
            self.wait_in_fetches,
            self.repeat_names,
            self.invent_names,
        ]

    def _wire(self, *, receive_buffer: int | None = None) -> Wire:
        wire = Wire(self._ports.kafka, receive_buffer=receive_buffer)
        wire.log_in(*NOISY)
        return wire


class Places(NamedTuple):
    ports: Ports
    tls_port: int


def attack_as_stranger(places: Places, seed: str) -> None:
    choose = random.Random(seed)
    act_without_end(Stranger(places.ports, places.tls_port, choose).acts(), choose)


def attack_as_noisy_user(places: Places, seed: str) -> None:
    choose = random.Random(seed)
    act_without_end(NoisyUser(places.ports, choose).acts(), choose)


def pay(settings: dict[str, object], rates: "multiprocessing.Queue[float | str]", over: Event) -> None:
    """Produce until it is over; `rates` gets the acknowledged records of each second, or what went wrong."""
    producer = confluent_kafka.Producer({**settings, "linger.ms": 5, "queue.buffering.max.messages": 20_000})
    value = bytes(RECORD_BYTES)
    acknowledged = 0

    def delivered(error: confluent_kafka.KafkaError | None, _: object) -> None:
        nonlocal acknowledged
        if error is not None:
            rates.put(str(error))
            over.set()
        acknowledged += 1

    second_ends = time.monotonic() + 1
    while not over.is_set():
        for _ in range(500):
            while True:
                try:
                    producer.produce(PAID_TOPIC, value, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
        now = time.monotonic()
        if now >= second_ends:
            rates.put(acknowledged / (now - second_ends + 1))
            acknowledged, second_ends = 0, now + 1
    producer.flush(30)


def prepare(guarded: Guarded) -> None:
    """The topics, and the noisy user's quotas."""
    with Wire(guarded.sasl) as wire:
        wire.log_in(*ADMIN)
        wire.create(PAID_TOPIC)
        wire.create(TARGET)
        ops = [OpData(key, value) for key, value in NOISY_QUOTAS.items()]
        entry = EntryData([EntityData("user", NOISY[0])], ops)
        answer = wire.ask("alter_client_quotas", 1, AlterClientQuotasRequest([entry]))
        assert [row.error_code for row in answer.entries] == [0]


class Cores:
    """Seconds of processor in a second that each process used since this began."""

    def __init__(self, pids: dict[str, int]) -> None:
        self._pids = pids
        self._began = time.monotonic()
        self._before = {name: cpu_time(pid).total for name, pid in pids.items()}

    def __str__(self) -> str:
        seconds = time.monotonic() - self._began
        return ", ".join(
            f"{name} {(cpu_time(pid).total - self._before[name]) / seconds:.2f}"
            for name, pid in self._pids.items()
        )


class Trial:
    """One server, its paying client and those beside it."""

    def __init__(self, server: MagnetarProcess, guarded: Guarded, seed: int) -> None:
        self._server = server
        self._guarded = guarded
        self._seed = seed
        self._spawn = multiprocessing.get_context("spawn")
        self._rates: multiprocessing.Queue[float | str] = self._spawn.Queue()
        self._resident = 0

    def run(self, minutes: float) -> str:
        """The closing line; raises `Broken`, and `ServerFailed` when SIGTERM does not end the server."""
        prepare(self._guarded)
        over = self._spawn.Event()
        user = {**self._guarded.confluent(*ADMIN), "client.id": "paying"}
        payer = self._spawn.Process(target=pay, args=(user, self._rates, over), daemon=True)
        payer.start()
        try:
            self._second_by_second(WARM_UP_S)
            pids = {"server": self._server.pid, "paying client": payer.pid or 0}
            cores_alone = Cores(pids)
            alone = self._second_by_second(minutes * 60 * ALONE_SHARE)
            print(f"cores alone: {cores_alone}", flush=True)
            with self._hostile_clients() as hostile:
                cores_beside = Cores(pids | hostile)
                beside = self._second_by_second(minutes * 60 * (1 - 2 * ALONE_SHARE), say=True)
                print(f"cores beside: {cores_beside}", flush=True)
            self._second_by_second(WARM_UP_S)
            alone += self._second_by_second(minutes * 60 * ALONE_SHARE)
            over.set()
            payer.join(60)
        finally:
            over.set()
            payer.kill()
            payer.join()
        return self._judge(alone, beside)

    def _second_by_second(self, seconds: float, *, say: bool = False) -> list[float]:
        found: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            try:
                rate = self._rates.get(timeout=60)
            except queue.Empty:
                raise Broken(
                    f"the paying client got no answer for a minute: {self._server.log[-500:]}"
                ) from None
            if isinstance(rate, str):
                raise Broken(f"the paying client: {rate}")
            found.append(rate)
            self._resident = max(self._resident, resident_bytes(self._server))
            if say and len(found) % 60 == 0:
                print(
                    f"{len(found) // 60:3} min: {statistics.median(found[-60:]):,.0f} records/s", flush=True
                )
        return found

    @contextmanager
    def _hostile_clients(self) -> Iterator[dict[str, int]]:
        """Their process ids, by what they are."""
        ports = Ports(self._guarded.sasl, self._server.pulsar_port, self._server.http_port)
        places = Places(ports, self._guarded.sasl_ssl)
        processes = [
            self._spawn.Process(target=kind, args=(places, f"{self._seed} {kind.__name__}"), daemon=True)
            for kind in (attack_as_stranger, attack_as_noisy_user)
        ]
        for process in processes:
            process.start()
        try:
            yield {
                name: process.pid or 0
                for name, process in zip(("strangers", "noisy user"), processes, strict=True)
            }
        finally:
            for process in processes:
                process.kill()
                process.join()

    def _judge(self, alone: list[float], beside: list[float]) -> str:
        if not self._server.running:
            raise Broken(f"the server ended: {self._server.log[-500:]}")
        self._server.terminate()
        log = self._server.log
        if "Traceback" in log:
            raise Broken(f"a traceback: {log[log.index('Traceback') :][:800]}")
        limit = LIMIT_BYTES + CACHE_BYTES + HEADROOM_BYTES
        if self._resident > limit:
            raise Broken(f"{self._resident / MIB:.0f} MiB are resident, the limits come to {limit / MIB:.0f}")
        rate_alone, rate_beside = statistics.median(alone), statistics.median(beside)
        loss = 1 - rate_beside / rate_alone
        said = (
            f"{rate_alone:,.0f} records/s alone, {rate_beside:,.0f} beside hostile clients ({loss:+.1%} lost);"
            f" {self._resident / MIB:.0f} MiB resident at most of {limit / MIB:.0f}; no traceback"
        )
        if loss > LOSS_MAX:
            raise Broken(said)
        return said


def run(minutes: float, seed: int) -> str:
    with tempfile.TemporaryDirectory(prefix="magnetar-paying-") as folder:
        guarded = Guarded(Authority(Path(folder)))
        settings = {
            **SETTINGS,
            **guarded.settings,
            "listeners": guarded.settings["listeners"].split(",", 1)[1],  # none without a login
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "allow.everyone.if.no.acl.found": "true",
            "log.retention.bytes": str(256 * MIB),
            "log.retention.check.interval.ms": "2000",  # it writes 20 GB a minute
            "log.segment.bytes": str(64 * MIB),
        }
        with MagnetarProcess(settings=settings) as server:
            return Trial(server, guarded, seed).run(minutes)


if __name__ == "__main__":
    raise SystemExit(
        part.main(
            "tests.soak.paying", __doc__, {"minutes": 30.0}, lambda options, seed: run(options.minutes, seed)
        )
    )
