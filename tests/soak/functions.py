"""Functions that are killed with `kill -9`, with their server, again and again: EFFECTIVELY_ONCE and ATLEAST_ONCE.

    python -m tests.soak.functions --kills 20 --seed 1 [--planted duplicates-stored]

Two functions read one input.  Before each kill a client sends messages, some in batches and some alone.  Then comes one
of these, and of three each comes once:

* when the first function has made a random number of outputs of them, the processes of both are killed
* so is the server
* no output can be stored: a client has the topics of the outputs for itself.  When each function has a message whose
  output waits, their processes are killed.  That shows a function which acknowledges its message too early.

In the end each message of the input must have its output (`function_history.py`).

`--planted`: the server, or what runs its functions, has a bug (`planted.py`), which has to be found.
"""

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import pulsar

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import (
    PATIENCE_S,
    RUNNER,
    SETTINGS,
    Worker,
    client_of,
    deduplicate,
    instance_pids,
)
from tests.pulsar_peer import admin
from tests.soak import part, planted
from tests.soak.function_history import check_at_least_once, check_once, output_of
from tests.soak.mixed_history import Broken
from tests.soak.processes import READY_S


class _Function(NamedTuple):
    """What is promised of a function, and what its outputs must hold."""

    guarantee: str
    check: Callable[[Sequence[bytes], Sequence[bytes]], None]


FUNCTIONS: Final[Mapping[str, _Function]] = MappingProxyType(
    {
        "once": _Function("EFFECTIVELY_ONCE", check_once),
        "least": _Function("ATLEAST_ONCE", check_at_least_once),
    }
)
KINDS: Final = ("function", "server", "held")
ROUND: Final = 200  # messages before each kill
INPUT, LAST = "taken", b"last"
HELD_S_MAX: Final = 0.5
_RUNNERS: Final = (RUNNER, planted.INSTANCE)
_EACH_S: Final = 0.2


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
        for name, function in FUNCTIONS.items():
            worker.create(
                name,
                "plain.py",
                "plain.process",
                inputs=[INPUT],
                output=_outputs(name),
                processingGuarantees=function.guarantee,
                subscriptionPosition="Earliest",
            )
        for number, kind in zip(range(kills), _kinds(choose), strict=False):
            for name in FUNCTIONS:
                worker.until_running(name)
            if kind == "held":
                until_all_is_acknowledged(server)
                with outputs_held(server):
                    send(server, number * ROUND, batched=False)
                    kill_while_held(server, worker, choose)
            else:
                work(server, number * ROUND, choose.randrange(ROUND))
                kill(kind, server, worker)
        with client_of(server) as client:
            client.create_producer(INPUT).send(LAST)
        until_all_is_acknowledged(server)
        given = read(server, INPUT, LAST)
        if len(given) < kills * ROUND + 1:
            raise Broken(f"the input has {len(given)} messages: not all that were acknowledged")
        made = {name: read(server, _outputs(name), output_of(LAST)) for name in FUNCTIONS}
        check(given, made)
        if "Traceback" in server.log:
            raise Broken("a traceback: " + server.log[server.log.index("Traceback") :][:600])
    again = len(made["least"]) - len(given)
    took_s = time.monotonic() - began
    return f"{kills} kills, {len(given)} messages with one output each, in order; {again} came again, {took_s:.0f} s"


def check(given: Sequence[bytes], made: Mapping[str, Sequence[bytes]]) -> None:
    """Compare the outputs of each function with the messages of the input.  Raises Broken, which names all faults."""
    faults = []
    for name, function in FUNCTIONS.items():
        try:
            function.check(given, made[name])
        except Broken as broken:
            faults.append(f"{name}: {broken}")
    if faults:
        raise Broken("; ".join(faults))


def work(server: MagnetarProcess, first: int, outputs: int) -> None:
    """Send messages from number `first` on; returns when so many outputs have been made of them.  Raises Broken."""
    with client_of(server) as client:
        made = client.create_reader(_outputs("once"), pulsar.MessageId.latest)
        send(server, first)
        for _ in range(outputs):
            _next(made, "an output")


def send(server: MagnetarProcess, first: int, *, batched: bool = True) -> None:
    """Send messages from number `first` on, four of five in batches; returns when all are acknowledged.

    Of a batch the client acknowledges nothing before it acknowledges all, so what comes too early does no harm there.
    """
    with client_of(server) as client:
        batches = client.create_producer(
            INPUT, batching_enabled=True, batching_max_messages=7, batching_max_publish_delay_ms=5
        )
        alone = client.create_producer(INPUT)
        for number in range(first, first + ROUND):
            (batches if batched and number % 5 else alone).send_async(b"m%06d" % number, None)
        batches.flush()
        alone.flush()


@contextmanager
def outputs_held(server: MagnetarProcess) -> Iterator[None]:
    """For the time of a block no function can store an output."""
    with client_of(server) as client:
        for name in FUNCTIONS:
            client.create_producer(_outputs(name), access_mode=pulsar.ProducerAccessMode.ExclusiveWithFencing)
        yield


def kill_while_held(server: MagnetarProcess, worker: Worker, choose: random.Random) -> None:
    """Kill the processes when each has a message whose output waits."""
    for name in FUNCTIONS:
        worker.until(name, lambda one: bool(one["numReceived"] > one["numSuccessfullyProcessed"]))
    time.sleep(choose.uniform(0, HELD_S_MAX))  # the random moment: nothing is waited for
    kill("function", server, worker)


def kill(kind: str, server: MagnetarProcess, worker: Worker) -> None:
    """Kill the server or the processes of all functions, and have them start again."""
    if kind == "server":
        server.kill()
        server.start()
        return
    killed = instance_pids(server, _RUNNERS)
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    worker.until("once", lambda _: len({*instance_pids(server, _RUNNERS)} - {*killed}) == len(FUNCTIONS))


def until_all_is_acknowledged(server: MagnetarProcess) -> None:
    """Return when the functions have acknowledged all of the input.  Raises Broken."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        found = admin(server.http_url, f"persistent/public/default/{INPUT}/stats")["subscriptions"]
        left = {name: found[f"public/default/{name}"]["msgBacklog"] for name in FUNCTIONS}
        if not any(left.values()):
            return
        if time.monotonic() > ends:
            raise Broken(f"not all of the input is acknowledged: {left}")
        time.sleep(_EACH_S)


def _outputs(name: str) -> str:
    return f"made-{name}"


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
