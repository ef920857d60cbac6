"""Where the processor time of a small request goes, layer by layer.

    python -m bench.layers [--door kafka|pulsar]

py-spy looks at a server's event loop some thousand times a second, while one client sends small requests: what a layer
takes is its share of the time, that is, the time in its Python functions and in the C code and the system calls that
these make.  The total is the process's own processor time, for as many requests that nothing looks at.  What is left
of it is the event loop, its reads of sockets, the kernel's work behind all that, and the server's other threads.

Run it with nothing else on the machine: a function that another program interrupts counts for longer.
"""

import argparse
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, takewhile
from pathlib import Path
from typing import Final

from bench.process import RunFailed, cpu_time
from bench.small_requests import BATCH, Ports, Way, kafka_ways, pulsar_ways
from magnetar.testing.server import MagnetarProcess, ServerFailed

IN_FLIGHT: Final = 16
WAYS: Final[dict[str, Sequence[Callable[[Ports], Iterator[Way]]]]] = {
    "kafka": [kafka_ways, partial(kafka_ways, in_flight=IN_FLIGHT), partial(kafka_ways, records=BATCH)],
    "pulsar": [
        partial(pulsar_ways, messages=1),
        partial(pulsar_ways, messages=1, in_flight=IN_FLIGHT),
        partial(pulsar_ways, messages=BATCH),
    ],
}
COUNT: Final = 16_000  # requests in a slice; what is delivered was sent before
LOOKS_PER_S: Final = 1_000
REST: Final = "loop, kernel"
LAYERS: Final = (
    (
        "framing",
        (
            "wire/framing.py",
            "protocols/intake.py",
            "protocols/outbox.py",
            "protocols/backpressure.py",
            "base/turn_end.py",
            "base/turns.py",
            "base/memory_budget.py",
        ),
    ),
    ("socket", ("server/connection.py",)),
    ("encoding", ("wire/", "base/varint.py")),
    ("handlers", ("protocols/kafka/handlers/", "protocols/pulsar/handlers/")),
    ("session", ("protocols/",)),
    ("use cases", ("broker/usecases/", "broker/security/", "broker/quotas/")),
    ("partition", ("broker/",)),
    ("ledger", ("ledger/",)),
    ("journal", ("storage/",)),
    ("others", ("",)),
)
"""A function belongs to the first layer that has the beginning of its file's path below `magnetar`."""

BEGUN: Final = "Sampling process"  # py-spy says so
LOOP: Final = "Runner.run"
"""The function below which all of the event loop's thread is."""

_LEAF: Final = re.compile(r"\((?:\S*/)?magnetar/(\S+\.py):\d+\)$")


def layer_of(frame: str) -> str | None:
    """The layer of what py-spy calls a frame, `name (file:line)`; None for one that is not the server's."""
    found = _LEAF.search(frame)
    if found is None:
        return None
    return next(name for name, beginnings in LAYERS if found[1].startswith(beginnings))


def shares(lines: Iterable[str]) -> dict[str, float]:
    """In which part of its looks py-spy saw each layer at work.

    `lines` are its raw ones, `frame;frame;frame count`, of all threads.
    """
    found = dict.fromkeys((name for name, _ in LAYERS), 0)
    looks = 0
    for line in lines:
        stack, _, count = line.rstrip().rpartition(" ")
        if LOOP not in stack:
            continue
        looks += int(count)
        layer = layer_of(stack.rpartition(";")[2])
        if layer is not None:
            found[layer] += int(count)
    return {name: count / max(looks, 1) for name, count in found.items()}


def watched(pid: int, run: Callable[[], None]) -> dict[str, float]:
    """By layer, the seconds that it was at work while `run` ran."""
    with tempfile.TemporaryDirectory(prefix="layers-") as folder:
        output = Path(folder) / "raw"
        command = [
            str(Path(sys.executable).with_name("py-spy")), "record", "--nonblocking", "--idle", "--format", "raw",
            "--rate", str(LOOKS_PER_S), "--duration", "600", "--output", str(output), "--pid", str(pid),
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as looker:
            assert looker.stdout is not None
            said = list(takewhile(lambda line: BEGUN not in line, looker.stdout))
            began_s = time.monotonic()
            if looker.poll() is None:
                run()
            took_s = time.monotonic() - began_s
            looker.send_signal(signal.SIGINT)
            said += looker.communicate()[0].splitlines(keepends=True)
        if not output.exists():
            raise RunFailed(f"py-spy did not look at the server: {''.join(said)[-500:]}")
        found = shares(output.read_text().splitlines())
    return {name: took_s * share for name, share in found.items()}


def measured(pid: int, way: Way) -> dict[str, float]:
    """By layer, and the rest, the seconds that one request of `way` takes."""

    def some() -> None:
        for _ in range(COUNT // way.requests):
            way.once()

    some()
    before = cpu_time(pid).total
    some()
    total_s = cpu_time(pid).total - before
    seconds = {name: took / COUNT for name, took in watched(pid, some).items()}
    return {REST: max(total_s / COUNT - sum(seconds.values()), 0.0)} | seconds


def table(found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """Markdown: microseconds of one request."""
    names = list(next(iter(found.values())))
    yield f"| one request, us | {' | '.join(names)} | sum |"
    yield "|" + "---|" * (len(names) + 2)
    for way, seconds in found.items():
        cells = [f"{took * 1e6:.1f}" for took in (*seconds.values(), sum(seconds.values()))]
        yield f"| {way} | {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.layers", description=__doc__.partition("\n")[0])
    parser.add_argument("--door", choices=WAYS, action="append", help="only this one")
    doors = parser.parse_args().door or list(WAYS)
    found: dict[str, dict[str, float]] = {}
    try:
        with MagnetarProcess() as server:
            ports = Ports(server.ports[0], server.pulsar_port)
            for way in chain.from_iterable(ways(ports) for door in doors for ways in WAYS[door]):
                found[way.name] = measured(server.pid, way)
    except (RunFailed, ServerFailed, OSError) as error:
        print(f"bench.layers: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(found)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
