"""How many instructions a server spends on one small request, counted by callgrind.

    python -m bench.instructions [--base PROGRAM] [--door kafka|pulsar]
    python -m bench.instructions --guarded

CPU seconds differ by a tenth from run to run on a machine that others share; instructions differ by a thousandth.  They
are those of the process: what the kernel, the disk and the caches add is not in them.  So they tell whether a change
made the way of a request longer, and `make bench` tells what that matters.

`--guarded` counts Kafka's requests on a server with rules and quotas, beside one without.

A server runs fifty times slower under callgrind, so no round of the journal has more than one client's batch in it.
"""

import argparse
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from struct import pack
from typing import Any, Final, NamedTuple

from kafka.record.default_records import DefaultRecordBatchBuilder

from bench import admin, servers
from bench.process import RunFailed
from bench.security_measures import GUARDED, NEVER_REACHED
from bench.servers import HOST
from magnetar.testing.server import free_ports
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import alter_client_quotas, asking, fetch, metadata, produce
from magnetar.wire.pulsar.commands import frame_command, read_command
from magnetar.wire.pulsar.entry import frame_entry
from magnetar.wire.pulsar.PulsarApi_pb2 import (
    BaseCommand,
    CommandAck,
    CommandConnect,
    CommandFlow,
    CommandPong,
    CommandProducer,
    CommandSend,
    CommandSubscribe,
    MessageMetadata,
    SingleMessageMetadata,
)

TOPIC: Final = "counted"
CLIENT_ID: Final = "bench"
COUNT: Final = 400  # requests in a slice
SLICES: Final = 9  # the least counts: upkeep runs in some of the others
WARM_UP: Final = 200
PATIENCE_S: Final = 300.0
SETTLE_S: Final = 2.0
RESTING_S: Final = 0.15  # of processor time in a second, for timers: callgrind makes them fifty times as dear
BATCH: Final = 100  # messages
VALUE_BYTES: Final = 100
LARGE_VALUE_BYTES: Final = 1024
KEEP_ALIVE_S: Final = 86_400  # a server this slow would take its clients for dead
_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


class Way(NamedTuple):
    """One thing that a client does, and has an answer to."""

    name: str
    once: Callable[[], None]


def total(text: str) -> int:
    """The instructions that a file of callgrind's has in all.

    Raises:
        RunFailed: it has none.
    """
    found = [int(number) for number in _TOTAL.findall(text)]
    if not found:
        raise RunFailed("callgrind wrote no total")
    return max(found)


class Counted:
    """A server under callgrind, in a folder of its own."""

    def __init__(self, program: Path, folder: Path, settings: Iterable[str]) -> None:
        self._folder = folder
        self._output = folder / "callgrind.out"
        self.port, self.pulsar_port, http = free_ports(3)
        ports = ["--kafka-port", self.port, "--pulsar-port", self.pulsar_port, "--http-port", http]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "valgrind",
                    "--tool=callgrind",
                    f"--callgrind-out-file={self._output}",
                    interpreter_of(program),
                    str(program),
                    "standalone",
                    "--data-dir",
                    str(folder / "data"),
                    f"--set=keepAliveIntervalSeconds={KEEP_ALIVE_S}",
                    *(f"--set={setting}" for setting in settings),
                    *map(str, ports),
                ],
                env=servers.elsewhere() | {"PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait(self) -> None:
        """Until both doors take connections."""
        give_up_at = time.monotonic() + PATIENCE_S
        while self._process.poll() is None and time.monotonic() < give_up_at:
            try:
                for port in (self.port, self.pulsar_port):
                    socket.create_connection((HOST, port)).close()
                return
            except OSError:
                time.sleep(0.3)
        raise RunFailed(f"no server under callgrind: {(self._folder / 'log').read_text()[-2000:]}")

    def rest(self) -> None:
        """Until it does next to nothing unasked: with clients of both doors it compiles, here for minutes."""
        began_s = self._processor_s()
        while (before_s := self._processor_s()) - began_s < PATIENCE_S:  # others may use the machine, too
            time.sleep(1.0)
            if self._processor_s() - before_s < RESTING_S:
                return
        raise RunFailed("the server has something to do all the time")

    def _processor_s(self) -> float:
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def count(self, run: Callable[[], None]) -> int:
        """The instructions of the process while `run` runs."""
        for old in self._folder.glob("callgrind.out*"):
            old.unlink()
        self._control("--zero")
        run()
        self._control("--dump")
        return max(total(path.read_text(errors="replace")) for path in self._folder.glob("callgrind.out.*"))

    def _control(self, order: str) -> None:
        command = ["callgrind_control", order, str(self._process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, check=False)
        if done.returncode:
            raise RunFailed(f"{' '.join(command)}: {done.stderr.strip()}")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def interpreter_of(program: Path) -> str:
    """The Python that a console script names in its first line."""
    first = program.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
    if not first.startswith("#!"):
        raise RunFailed(f"{program} is no Python script that says with what it runs")
    return first.removeprefix("#!").strip()


@contextmanager
def counted(program: Path, settings: Iterable[str]) -> Iterator[Counted]:
    with tempfile.TemporaryDirectory(prefix="instructions-") as folder:
        server = Counted(program, Path(folder), settings)
        try:
            server.wait()
            yield server
        finally:
            server.stop()


class Client:
    """One connection, to either door."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def say(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def hear(self) -> bytes:
        """The next frame, without its size."""
        data = self._received
        while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            part = self._socket.recv(1 << 20)
            if not part:
                raise RunFailed("the server has closed the connection")
            data += part
        end = 4 + int.from_bytes(data[:4], "big")
        self._received = data[end:]
        return data[4:end]

    def hear_command(self, kind: "BaseCommand.Type") -> Any:
        """The next command of Pulsar's of this kind; those that ask whether the client is there are answered."""
        while True:
            found, command, _ = read_command(memoryview(self.hear()))
            if found == kind:
                return command
            if found == BaseCommand.PING:
                self.say(frame_command(BaseCommand(type=BaseCommand.PONG, pong=CommandPong())))
            elif found == BaseCommand.ERROR:
                raise RunFailed(f"the server refuses: {command.message}")


# --- what is counted -------------------------------------------------------------------------------------------------


def kafka_frame(module: Any, version: int, request: Any) -> bytes:
    """A request as a client sends it; `module` is its codec."""
    parts: list[Any] = [encode_request_header(module.API_KEY, version, 1, CLIENT_ID)]
    asking.load(module.API_KEY).encode_request(version, request, parts)
    body = b"".join(parts)
    return pack(">i", len(body)) + body


def kafka_ways(server: Counted) -> Iterator[Way]:
    """One record in each Produce, and a Fetch of one record."""
    client = Client(server.port)
    topic = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)])
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 1 << 20)
    builder.append(0, int(time.time() * 1000), None, bytes(VALUE_BYTES), [])
    row = produce.PartitionProduceData(0, bytes(builder.build()))
    one = produce.ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[produce.TopicProduceData(TOPIC, partition_data=[row])]
    )
    wanted = fetch.FetchPartition(0, fetch_offset=0, partition_max_bytes=1)
    first = fetch.FetchRequest(
        replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1,
        topics=[fetch.FetchTopic(TOPIC, partitions=[wanted])],
    )  # fmt: skip

    def ask(frame: bytes) -> None:
        client.say(frame)
        client.hear()

    ask(kafka_frame(metadata, 9, topic))
    time.sleep(SETTLE_S)  # until the topic is there
    for name, frame in (
        ("Produce of one record", kafka_frame(produce, 9, one)),
        ("Fetch of one record", kafka_frame(fetch, 11, first)),
    ):
        yield Way(name, partial(ask, frame))


def pulsar_client(server: Counted) -> Client:
    """A connection to Pulsar's door that has said hello."""
    client = Client(server.pulsar_port)
    hello = CommandConnect(client_version="bench", protocol_version=21)
    client.say(frame_command(BaseCommand(type=BaseCommand.CONNECT, connect=hello)))
    client.hear_command(BaseCommand.CONNECTED)
    return client


def pulsar_ways(server: Counted) -> Iterator[Way]:
    """Batches of small messages, and batches of large ones."""
    yield from pulsar_batches(server, VALUE_BYTES)
    yield from pulsar_batches(server, LARGE_VALUE_BYTES)


def pulsar_batches(server: Counted, value_bytes: int) -> Iterator[Way]:
    """Batches of messages, sent one by one, and received with a flow and an acknowledgement for every ten."""
    topic = f"{TOPIC}-pulsar-{value_bytes}"
    producer = pulsar_client(server)
    make = CommandProducer(topic=topic, producer_id=1, request_id=1)
    producer.say(frame_command(BaseCommand(type=BaseCommand.PRODUCER, producer=make)))
    name = producer.hear_command(BaseCommand.PRODUCER_SUCCESS).producer_name
    single = SingleMessageMetadata(payload_size=value_bytes).SerializeToString()
    message = pack(">I", len(single)) + single + bytes(value_bytes)
    described = MessageMetadata(
        producer_name=name, sequence_id=0, publish_time=int(time.time() * 1000), num_messages_in_batch=BATCH
    )
    entry = bytes(frame_entry(described, message * BATCH))
    numbers = count()

    def send() -> None:
        sent = CommandSend(producer_id=1, sequence_id=next(numbers), num_messages=BATCH)
        head = frame_command(BaseCommand(type=BaseCommand.SEND, send=sent))
        producer.say(pack(">I", len(head) - 4 + len(entry)) + head[4:] + entry)
        producer.hear_command(BaseCommand.SEND_RECEIPT)

    yield Way(f"Pulsar: {BATCH} of {value_bytes} B sent", send)
    consumer = pulsar_client(server)
    subscribe = CommandSubscribe(
        topic=topic, subscription="bench", subType=CommandSubscribe.Exclusive, consumer_id=1,
        request_id=1, initialPosition=CommandSubscribe.Earliest,
    )  # fmt: skip
    consumer.say(frame_command(BaseCommand(type=BaseCommand.SUBSCRIBE, subscribe=subscribe)))
    consumer.hear_command(BaseCommand.SUCCESS)
    flow = CommandFlow(consumer_id=1, messagePermits=10 * BATCH)
    left = 0

    def receive() -> None:
        nonlocal left
        if not left:
            consumer.say(frame_command(BaseCommand(type=BaseCommand.FLOW, flow=flow)))
            left = 10
        last = consumer.hear_command(BaseCommand.MESSAGE).message_id
        left -= 1
        if not left:
            ack = CommandAck(consumer_id=1, ack_type=CommandAck.Cumulative, message_id=[last])
            consumer.say(frame_command(BaseCommand(type=BaseCommand.ACK, ack=ack)))

    yield Way(f"Pulsar: {BATCH} of {value_bytes} B received", receive)


WAYS: Final[dict[str, Callable[[Counted], Iterator[Way]]]] = {"kafka": kafka_ways, "pulsar": pulsar_ways}


def guard(server: Counted) -> None:
    """Make a rule for the topic, and a quota for the client, that are asked at each request and hold nothing back."""
    bootstrap = f"{HOST}:{server.port}"
    admin.create_topics(bootstrap, [TOPIC])
    admin.allow_all(bootstrap, TOPIC)
    quotas = [
        alter_client_quotas.OpData(key, NEVER_REACHED) for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    client = [alter_client_quotas.EntityData("client-id", CLIENT_ID)]
    change = alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.EntryData(client, quotas)])
    one = Client(server.port)
    one.say(kafka_frame(alter_client_quotas, 1, change))
    one.hear()


def instructions_of(program: Path, doors: Iterable[str], *, guarded: bool = False) -> dict[str, int]:
    """By name of what is done, the instructions of doing it once."""
    found: dict[str, int] = {}
    with counted(program, GUARDED if guarded else ()) as server:
        if guarded:
            guard(server)
        for way in chain.from_iterable(WAYS[door](server) for door in doors):
            for _ in range(WARM_UP):
                way.once()
            server.rest()
            least = min(server.count(partial(_often, way.once)) for _ in range(SLICES))
            found[way.name] = round(least / COUNT)
    return found


def _often(once: Callable[[], None]) -> None:
    for _ in range(COUNT):
        once()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.instructions", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--base", type=Path, metavar="PROGRAM", help="the `magnetar` of another installation")
    parser.add_argument("--door", choices=WAYS, action="append", help="only this one")
    parser.add_argument(
        "--guarded", action="store_true", help="with rules and quotas, beside this installation without"
    )
    options = parser.parse_args()
    ours_program = Path(sys.executable).with_name("magnetar")
    base, doors, guarded = options.base, options.door or list(WAYS), options.guarded
    if guarded:
        base, doors = ours_program, ["kafka"]
    if shutil.which("valgrind") is None:
        print("bench.instructions needs valgrind on PATH (Debian: valgrind)", file=sys.stderr)
        return 1
    try:
        ours = instructions_of(ours_program, doors, guarded=guarded)
        theirs = {} if base is None else instructions_of(base, doors)
    except (RunFailed, OSError) as error:
        print(f"bench.instructions: {error}", file=sys.stderr)
        return 1
    for name, number in ours.items():
        beside = f"{theirs[name]:>10,} of the other{number / theirs[name]:>8.3f}x" if theirs else ""
        print(f"{name:<32}{number:>10,}{beside}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
