"""A Python function that returns what it gets: Magnetar's instances beside Pulsar's own runner of the same function.

Both work on Magnetar, one after the other, in each run in the other order than in the one before, so that the runners
are compared and not the brokers.  Both have ATLEAST_ONCE, one instance, the default serde, outputs without compression,
and batches of outputs as each makes them: up to 1 ms here, up to 10 ms there.
"""

import itertools
import json
import statistics
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import process, pulsar_server, stats
from bench.arrivals import Costs, arrived_in, watch
from bench.function_load import delays, fill, make
from bench.measures import Effort, Measure, Tools
from bench.process import RunFailed
from bench.pulsar_client import Addresses
from bench.pulsar_runner import PulsarRunner
from bench.servers import Server
from bench.stats import Better, Figure, Samples

TABLE = "functions"  # of the report, for what is compared with Pulsar's runner
SETTINGS = ("functionsWorkerEnabled=true",)
CODE = Path(__file__).with_name("jobs") / "passing.py"
CLASS = "passing.Passing"
SIZE = 100
RATE = 500  # messages a second, for latencies
WARM_UP_SECONDS = 5
READING_SECONDS_MAX = 120.0
POLL_SECONDS = 0.2
REQUEST_SECONDS = 60.0

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Running:
    """A function at work: what it and the server have cost, and whether it still runs."""

    costs: Costs
    alive: Callable[[], bool]


Runner = Callable[[str, str], AbstractContextManager[Running]]
"""Has the function read one topic and write the other for the time of a block."""


def rate(server: Server, tools: Tools, effort: Effort) -> Samples:
    """A backlog that each runner works off."""
    count = effort.single_count
    samples: Samples = {}
    for name, runner, source, target in _turns(server, tools):
        fill(pulsar_server.addresses(server), source, size=SIZE, count=count)
        with runner(source, target) as running:
            arrived = arrived_in(server.bootstrap, target, 1)
            arrivals = watch(arrived, count, running.costs, running.alive)
        found = {
            f"{name}_messages_s": arrivals.records / arrivals.seconds,
            f"{name}_cpu_us": arrivals.spent["working"] / arrivals.records * 1e6,
            f"{name}_others_cpu_share": process.share_of_machine(
                arrivals.spent["busy"] - arrivals.spent["working"], arrivals.seconds
            ),
        }
        stats.add_sample(samples, found)
    return samples


def latency(server: Server, tools: Tools, effort: Effort) -> Samples:
    """From the call that sends a message to the output's receipt."""
    where = pulsar_server.addresses(server)
    samples: Samples = {}
    for name, runner, source, target in _turns(server, tools):
        with runner(source, target):
            _wait_until_read(where, source)
            found = delays(
                where,
                source,
                target,
                size=SIZE,
                rate=RATE,
                warm_up_seconds=WARM_UP_SECONDS,
                seconds=effort.latency_seconds,
            )
        hundredths = statistics.quantiles(found, n=100)
        stats.add_sample(samples, {f"{name}_p50_ms": hundredths[49], f"{name}_p99_ms": hundredths[98]})
    return samples


def _turns(server: Server, tools: Tools) -> Iterator[tuple[str, Runner, str, str]]:
    """The started server's two runners by name, in turn, each with a topic to read and one to write."""
    other = tools.runner
    if other is None:
        raise RunFailed("the peers' pulsar script is not here, and with it Pulsar's runner of functions")
    server.settings = SETTINGS
    server.start()
    number = next(_numbers)
    turns: list[tuple[str, Runner]] = [
        ("function", lambda source, target: _of_magnetar(server, source, target)),
        ("runner", lambda source, target: _of_pulsar(server, other, source, target)),
    ]
    for name, runner in turns if number % 2 else reversed(turns):
        source, target = f"{name}-{number}-in", f"{name}-{number}-out"
        make(pulsar_server.addresses(server), source, target)
        yield name, runner, source, target


@contextmanager
def _of_magnetar(server: Server, source: str, target: str) -> Iterator[Running]:
    where = pulsar_server.addresses(server)
    config = {"className": CLASS, "inputs": [source], "output": target, "subscriptionPosition": "Earliest"}
    parts = {
        'name="functionConfig"': json.dumps(config).encode(),
        f'name="data"; filename="{CODE.name}"': CODE.read_bytes(),
    }
    _ask(where, "POST", target, parts)
    try:
        yield Running(_costs(lambda: process.tree_cpu(server.pid)), server.alive)
    finally:
        _ask(where, "DELETE", target)


@contextmanager
def _of_pulsar(server: Server, runner: PulsarRunner, source: str, target: str) -> Iterator[Running]:
    folder = server.folder / "runner" / target
    with runner.running(pulsar_server.addresses(server), CODE, CLASS, source, target, folder) as running:
        yield Running(
            _costs(lambda: process.cpu_time(server.pid).total + process.tree_cpu(running.pid)),
            lambda: running.poll() is None,
        )


def _costs(working: Callable[[], float]) -> Costs:
    return lambda: {"working": working(), "busy": process.machine_busy()}


def _ask(where: Addresses, method: str, name: str, parts: Mapping[str, bytes] | None = None) -> None:
    """Ask as `pulsar-admin functions` does, with the parts of a form.  RunFailed when the request is refused."""
    pieces = [
        f"--b\r\nContent-Disposition: form-data; {head}\r\n\r\n".encode() + content + b"\r\n"
        for head, content in (parts or {}).items()
    ]
    body = b"".join([*pieces, b"--b--\r\n"]) if parts else None
    url = f"{where.http}/admin/v3/functions/public/default/{name}"
    request = urllib.request.Request(url, body, method=method)
    request.add_header("Content-Type", "multipart/form-data; boundary=b")
    try:
        urllib.request.urlopen(request, timeout=REQUEST_SECONDS).close()
    except urllib.error.HTTPError as error:
        raise RunFailed(f"{method} {name} was answered with {error.code}: {error.read()[:200]!r}") from None
    except OSError as error:
        raise RunFailed(f"{method} {name}: {error}") from None


def _wait_until_read(where: Addresses, topic: str) -> None:
    """Return when a topic has a consumer."""
    deadline = time.monotonic() + READING_SECONDS_MAX
    while True:
        found = pulsar_server.request(where, "GET", f"persistent/public/default/{topic}/stats")
        if any(one["consumers"] for one in found["subscriptions"].values()):
            return
        if time.monotonic() > deadline:
            raise RunFailed(f"no function reads {topic} after {READING_SECONDS_MAX:.0f} s")
        time.sleep(POLL_SECONDS)


FUNCTION_MEASURES: tuple[Measure, ...] = (
    Measure(
        "function-rate",
        f"a Python function that passes {SIZE} B on",
        (
            Figure(
                "function_messages_s",
                f"function, {SIZE} B",
                "msg/s",
                Better.HIGHER,
                2.0,
                against="runner_messages_s",
            ),
            Figure(
                "function_cpu_us",
                f"function, {SIZE} B, CPU with the server's",
                "us/message",
                Better.LOWER,
                against="runner_cpu_us",
            ),
        ),
        rate,
        fresh=True,
        peer="",
        table=TABLE,
    ),
    Measure(
        "function-latency",
        f"a Python function that passes {RATE:,} messages a second on",
        (
            Figure(
                "function_p50_ms",
                f"function, p50 at {RATE:,} msg/s",
                "ms",
                Better.LOWER,
                0.5,
                against="runner_p50_ms",
            ),
            Figure(
                "function_p99_ms",
                f"function, p99 at {RATE:,} msg/s",
                "ms",
                Better.LOWER,
                0.5,
                against="runner_p99_ms",
            ),
        ),
        latency,
        fresh=True,
        peer="",
        table=TABLE,
    ),
)
