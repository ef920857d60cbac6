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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

from bench import admin, servers
from bench.process import RunFailed
from bench.security_measures import GUARDED, NEVER_REACHED
from bench.servers import HOST
from bench.small_requests import (
    CLIENT_ID,
    LARGE_VALUE_BYTES,
    PATIENCE_S,
    Client,
    Ports,
    Way,
    kafka_frame,
    kafka_topic,
    kafka_ways,
    pulsar_ways,
)
from magnetar.testing.server import free_ports
from magnetar.wire.kafka.messages import alter_client_quotas

COUNT: Final = 400  # requests in a slice
SLICES: Final = 9  # the least counts: upkeep runs in some of the others
WARM_UP: Final = 200
WAYS: Final[dict[str, Sequence[Callable[[Ports], Iterator[Way]]]]] = {
    "kafka": [kafka_ways],
    "pulsar": [pulsar_ways, partial(pulsar_ways, value_bytes=LARGE_VALUE_BYTES)],
}
RESTING_S: Final = 0.15  # of processor time in a second, for timers: callgrind makes them fifty times as dear
KEEP_ALIVE_S: Final = 86_400  # a server this slow would take its clients for dead
_TOTAL: Final = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)


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
        kafka, pulsar, http = free_ports(3)
        self.ports = Ports(kafka, pulsar)
        ports = ["--kafka-port", kafka, "--pulsar-port", pulsar, "--http-port", http]
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
                for port in self.ports:
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


def guard(server: Counted) -> None:
    """Make a rule for the topic, and a quota for the client, that are asked at each request and hold nothing back."""
    bootstrap = f"{HOST}:{server.ports.kafka}"
    admin.create_topics(bootstrap, [kafka_topic()])
    admin.allow_all(bootstrap, kafka_topic())
    quotas = [
        alter_client_quotas.OpData(key, NEVER_REACHED) for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    client = [alter_client_quotas.EntityData("client-id", CLIENT_ID)]
    change = alter_client_quotas.AlterClientQuotasRequest([alter_client_quotas.EntryData(client, quotas)])
    one = Client(server.ports.kafka)
    one.say(kafka_frame(alter_client_quotas, 1, change))
    one.hear()


def instructions_of(program: Path, doors: Iterable[str], *, guarded: bool = False) -> dict[str, int]:
    """By name of what is done, the instructions of doing it once."""
    found: dict[str, int] = {}
    with counted(program, GUARDED if guarded else ()) as server:
        if guarded:
            guard(server)
        for way in chain.from_iterable(ways(server.ports) for door in doors for ways in WAYS[door]):
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
