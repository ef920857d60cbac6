"""Very many delayed messages of one Shared subscription: what their index takes, and how long it is made anew.

    python -m tests.soak.delayed --messages 10000000 --due 1000 --seconds 900 --seed 1

A producer sends small messages whose delays are random times up to four weeks, and among them `--due` that have to come
`--seconds` after the beginning.  The server is killed and starts again.  A consumer comes, and all of them are read and
delayed for it, which is timed.  Then those that are due come, and no others.

It fails when the index is larger than `ENTRY_BYTES_MAX` for each message and a heap of new ones, or when a message is
lost, comes before its time, or comes twice.
"""

import argparse
import random
import re
import time
import urllib.request

import pulsar
from pulsar import ConsumerType, InitialPosition

from magnetar.broker.subscriptions.dispatch.delayed import NEW_ROW_BYTES, RUN_ROWS
from magnetar.testing.server import MagnetarProcess
from tests.integration.server.wire import eventually, now_ms, resident_bytes
from tests.soak import part
from tests.soak.mixed_history import Broken

TOPIC = "persistent://public/default/delayed"
ENTRY_BYTES_MAX = 20
FAR_MS = (24 * 3_600_000, 28 * 24 * 3_600_000)
MIB = 1 << 20
WAIT_S = 7_200
TIMEOUT_S = 30.0
SETTINGS = {"entry.cache.bytes": str(512 * MIB)}  # all subscriptions together may take as much


def run(options: argparse.Namespace, seed: int) -> str:
    with MagnetarProcess(settings=SETTINGS) as server:
        due_ms = now_ms() + 1_000 * options.seconds
        send_s = _send(server, options, due_ms, random.Random(seed))
        server.kill()
        server.start()
        before = resident_bytes(server)
        client = pulsar.Client(server.pulsar_url)
        began = time.monotonic()
        consumer = client.subscribe(
            TOPIC,
            "s",
            consumer_type=ConsumerType.Shared,
            initial_position=InitialPosition.Earliest,
            receiver_queue_size=2 * options.due
            + 1_000,  # nothing is read for a consumer that has no permits left
        )
        got: set[bytes] = set()
        left = options.messages - options.due
        eventually(lambda: _measured(server, "pulsar_subscription_delayed") >= left, "all is read", WAIT_S)
        read_s = time.monotonic() - began
        size = _measured(server, "pulsar_delayed_message_index_size_bytes")
        grown = resident_bytes(server) - before
        while len(got) < options.due:
            message = consumer.receive(1_000 * WAIT_S)
            if now_ms() < due_ms:
                raise Broken(f"{message.data()!r} comes too early")
            if not message.data().startswith(b"due") or message.data() in got:
                raise Broken(f"{message.data()!r} comes")
            got.add(message.data())
            consumer.acknowledge(message)
        eventually(
            lambda: _measured(server, "pulsar_subscription_delayed") == left, "the others wait", TIMEOUT_S
        )
        client.close()
    each = size / options.messages
    if size > options.messages * ENTRY_BYTES_MAX + RUN_ROWS * NEW_ROW_BYTES:
        raise Broken(f"the index takes {each:.1f} bytes for each message")
    return (
        f"{options.messages:,} messages: sent in {send_s:.0f} s; read and delayed anew in {read_s:.0f} s; "
        f"{each:.1f} bytes each in the index, the server has grown by {grown / MIB:.0f} MiB"
    )


def _send(server: MagnetarProcess, options: argparse.Namespace, due_ms: int, rng: random.Random) -> float:
    began = time.monotonic()
    client = pulsar.Client(server.pulsar_url)
    producer = client.create_producer(TOPIC, block_if_queue_full=True, max_pending_messages=10_000)
    failed: list[pulsar.Result] = []

    def sent(result: pulsar.Result, _id: object) -> None:
        if result != pulsar.Result.Ok:
            failed.append(result)

    now, due = now_ms(), set(rng.sample(range(options.messages), options.due))
    for number in range(options.messages):
        word, at_ms = (b"due", due_ms) if number in due else (b"far", now + rng.randrange(*FAR_MS))
        producer.send_async(b"%s %d" % (word, number), sent, deliver_at=at_ms)
    producer.flush()
    client.close()
    if failed:
        raise Broken(f"{len(failed)} messages were not sent: {failed[0]}")
    return time.monotonic() - began


def _measured(server: MagnetarProcess, name: str) -> float:
    with urllib.request.urlopen(f"{server.http_url}/metrics", timeout=TIMEOUT_S) as page:
        found = re.search(rf"^{name}{{.*}} (\S+)$", page.read().decode(), re.MULTILINE)
    return 0.0 if found is None else float(found[1])


if __name__ == "__main__":
    numbers = {"messages": 1_000_000, "due": 1_000, "seconds": 180}
    raise SystemExit(part.main("tests.soak.delayed", __doc__, numbers, run))
