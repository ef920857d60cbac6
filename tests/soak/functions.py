"""A function with EFFECTIVELY_ONCE, and kill -9 of its process and of the server, again and again.

    python -m tests.soak.functions --kills 20 --seed 1 [--planted duplicates-stored]

Before each kill a client sends messages, some in batches and some alone.  When the function has made a random number of
outputs of them, its process or the server is killed, and starts again; of two kills each hits another one.  In the end
each message of the input must have one output, in order (`function_history.py`).

`--planted`: the server has a bug (`planted.py`), which has to be found.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pulsar

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import (
    PATIENCE_S,
    SETTINGS,
    Worker,
    client_of,
    deduplicate,
    instance_pids,
)
from tests.soak import part, planted
from tests.soak.function_history import check, output_of
from tests.soak.mixed_history import Broken
from tests.soak.processes import READY_S

KINDS: Final = ("function", "server")
ROUND: Final = 200  # messages before each kill
INPUT, OUTPUT, LAST = "taken", "made", b"last"
_NAME: Final = "once"


def run(kills: int, seed: int, bug: str = "") -> str:
    """The closing line.  Raises Broken."""
    began = time.monotonic()
    choose = random.Random(seed)
    command = planted.command(bug) if bug else None
    with (
        tempfile.TemporaryDirectory(prefix="magnetar-functions-") as folder,
        MagnetarProcess(
            settings=SETTINGS, data_dir=Path(folder), command=command, ready_timeout_s=READY_S
        ) as server,
    ):
        deduplicate(server)
        worker = Worker(server)
        worker.create(
            _NAME,
            "plain.py",
            "plain.process",
            inputs=[INPUT],
            output=OUTPUT,
            processingGuarantees="EFFECTIVELY_ONCE",
            subscriptionPosition="Earliest",
        )
        for number, kind in zip(range(kills), _kinds(choose), strict=False):
            worker.until_running(_NAME)
            work(server, number * ROUND, choose.randrange(ROUND))
            kill(kind, server, worker)
        worker.until_running(_NAME)
        with client_of(server) as client:
            client.create_producer(INPUT).send(LAST)
        given, made = read(server, INPUT, LAST), read(server, OUTPUT, output_of(LAST))
        if len(given) < kills * ROUND + 1:
            raise Broken(f"the input has {len(given)} messages: not all that were acknowledged")
        check(given, made)
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
    took_s = time.monotonic() - began
    return f"{kills} kills, {len(made)} messages with one output each, in order, {took_s:.0f} s"


def work(server: MagnetarProcess, first: int, outputs: int) -> None:
    """Send messages from number `first` on; returns when all are acknowledged, and so many outputs have been made.

    Raises Broken.
    """
    with client_of(server) as client:
        made = client.create_reader(OUTPUT, pulsar.MessageId.latest)
        batches = client.create_producer(
            INPUT, batching_enabled=True, batching_max_messages=7, batching_max_publish_delay_ms=5
        )
        alone = client.create_producer(INPUT)
        for number in range(first, first + ROUND):
            (alone if number % 5 == 0 else batches).send_async(b"m%06d" % number, None)
        batches.flush()
        alone.flush()
        for _ in range(outputs):
            _next(made, "an output")


def kill(kind: str, server: MagnetarProcess, worker: Worker) -> None:
    """Kill, and have it start again."""
    if kind == "server":
        server.kill()
        server.start()
        return
    killed = instance_pids(server)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    worker.until(_NAME, lambda _: bool({*instance_pids(server)} - {*killed}))


def read(server: MagnetarProcess, topic: str, last: bytes) -> list[bytes]:
    """All messages of a topic, once this one is among them.  Raises Broken."""
    found: list[bytes] = []
    is_there = False
    with client_of(server) as client:
        reader = client.create_reader(topic, pulsar.MessageId.earliest)
        while not is_there or reader.has_message_available():
            found.append(_next(reader, f"{last!r} of {topic}"))
            is_there = is_there or found[-1] == last
    return found


def _next(reader: pulsar.Reader, what: str) -> bytes:
    try:
        found: bytes = reader.read_next(int(PATIENCE_S * 1000)).data()
    except pulsar.Timeout:
        raise Broken(f"{what} does not come") from None
    return found


def _kinds(choose: random.Random) -> Iterator[str]:
    while True:
        yield from choose.sample(KINDS, len(KINDS))


def main() -> int:
    def whole(options: argparse.Namespace, seed: int) -> str:
        return run(options.kills, seed, options.planted)

    return part.main("tests.soak.functions", __doc__, {"kills": 20}, whole, has_bugs=True)


if __name__ == "__main__":
    raise SystemExit(main())
