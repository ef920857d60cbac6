"""Pulsar's own load generator, `pulsar-perf`, through the peers' script: the same arguments against either server.

Its own summary of a produce run divides by a time that contains the end of its JVM (seconds), so the time is taken
from its log: from the line that says its producers are there to the one where the last of them was closed, which
waits for what is on its way.  A consume run ends with its last message, and its summary is used as it is.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench import parse, process, pulsar_parse
from bench.process import Finished, RunFailed

RUN_SECONDS_MAX = 300.0
START_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 60.0
UNLIMITED_RATE = 100_000_000
JAVA_MEMORY = "-Xms512m -Xmx512m -XX:MaxDirectMemorySize=1g"


@dataclass(frozen=True)
class Addresses:
    """Of a server with a Pulsar door."""

    pulsar: str
    http: str


@dataclass(frozen=True)
class PulsarLoad:
    """One client run; `finished` is what it cost."""

    transfer: parse.Transfer
    latency: parse.Latency
    finished: Finished


class PulsarPerf:
    def __init__(self, script: Path) -> None:
        self.script = script

    def produce(
        self,
        where: Addresses,
        topic: str,
        *,
        size: int,
        count: int,
        rate: int = UNLIMITED_RATE,
        warm_up_seconds: int = 1,
    ) -> PulsarLoad:
        """At least `count` messages of `size` bytes; the tool sends some more before it stops.

        Latencies of the first `warm_up_seconds` do not count.
        """
        arguments = ["-s", str(size), "-m", str(count), "-r", str(rate)]
        arguments += ["--warmup-time", str(warm_up_seconds), topic]
        finished = self._run("produce", where, arguments)
        return self._read(finished, lambda output: pulsar_parse.produced(output, size))

    def consume(
        self, where: Addresses, topic: str, subscription: str, *, size: int, count: int
    ) -> PulsarLoad:
        """`count` messages from the beginning, on a new subscription of type Exclusive."""
        arguments = ["-m", str(count), "-sp", "Earliest", "-ss", subscription, topic]
        finished = self._run("consume", where, arguments)
        return self._read(finished, lambda output: pulsar_parse.consumed(output, size))

    @contextmanager
    def consuming(
        self, where: Addresses, topic: str, subscription: str, *, subscriptions: int, log: Path
    ) -> Iterator["Consuming"]:
        """Consumers of `subscriptions` new subscriptions, there from the start of the block to its end."""
        arguments = ["-ns", str(subscriptions), "-ss", subscription, topic]
        with log.open("wb") as output:
            running = subprocess.Popen(
                self._command("consume", where, arguments),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_environment(where)},
            )
            try:
                yield Consuming(running, log)
            finally:
                process.end(running, grace_seconds=STOP_SECONDS_MAX)

    def _run(self, verb: str, where: Addresses, arguments: Sequence[str]) -> Finished:
        return process.run(
            self._command(verb, where, arguments),
            seconds_max=RUN_SECONDS_MAX,
            environment=_environment(where),
        )

    def _command(self, verb: str, where: Addresses, arguments: Sequence[str]) -> list[str]:
        return [str(self.script), "perf", verb, "-u", where.pulsar, *arguments]

    def _read(
        self, finished: Finished, read: Callable[[str], tuple[parse.Transfer, parse.Latency]]
    ) -> PulsarLoad:
        try:
            transfer, latency = read(finished.output)
        except parse.ParseError as error:
            raise RunFailed(str(error)) from error
        return PulsarLoad(transfer, latency, finished)


class Consuming:
    """`pulsar-perf consume` that goes on until it is stopped."""

    def __init__(self, running: "subprocess.Popen[bytes]", log: Path) -> None:
        self._running = running
        self._log = log

    def wait_until_there(self) -> None:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not pulsar_parse.is_receiving(self._log.read_text(errors="replace")):
            if self._running.poll() is not None or time.monotonic() > deadline:
                raise RunFailed(f"pulsar-perf consume did not begin: its output is {self._log}")
            time.sleep(0.1)

    def stop(self, size: int) -> tuple[parse.Transfer, parse.Latency]:
        """What it has received, `size` bytes each."""
        self._running.send_signal(signal.SIGTERM)
        try:
            self._running.wait(STOP_SECONDS_MAX)
            return pulsar_parse.consumed(self._log.read_text(errors="replace"), size)
        except subprocess.TimeoutExpired:
            raise RunFailed(f"pulsar-perf consume did not stop: its output is {self._log}") from None
        except parse.ParseError as error:
            raise RunFailed(str(error)) from error


def _environment(where: Addresses) -> dict[str, str]:
    return {"PULSAR_URL": where.pulsar, "PULSAR_ADMIN_URL": where.http, "PULSAR_MEM": JAVA_MEMORY}
