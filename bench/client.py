"""The load generators: librdkafka's `rdkafka_performance`, and Kafka's tools for latency and share groups.

`rdkafka_performance` is an example program that no package ships built, but the npm package node-rdkafka carries
librdkafka's sources.  They are fetched once at a pinned version, checked against a pinned digest and built without
optional libraries, so that every machine measures with the same client; the program is kept in `bench/.work`.
"""

import base64
import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import parse, process
from bench.process import Finished, RunFailed

WORK = Path(__file__).resolve().parent / ".work"
PACKAGE = "node-rdkafka"
PACKAGE_VERSION = "3.6.1"
PACKAGE_SHA512 = "sfpTbrT35429cs0RE8Yb9avGX9BiRRvpV7aweQsghKTjtrVZP3jBrKOPItWXAqHb8doyh3SkuGuUVBLgig1SRg=="
LIBRDKAFKA_VERSION = "2.12.0"  # what that package carries
WITHOUT_TLS = "--disable-ssl"
CONFIGURE = (
    "--disable-gssapi",
    "--disable-curl",
    "--disable-zstd",
    "--disable-lz4-ext",
    "--disable-zlib",
)

LINGER_MS = 5
RUN_SECONDS_MAX = 180.0
STATISTICS_MS = 500
JAVA_HEAP = "512m"
SHARE_JAVA_HEAP = "1g"
SHARE_WAIT_MS = 30_000  # for the next records, at most
# `rdkafka_performance -P` takes a statistics event that still waits at its end for a message, and ends with 1 then.
# Its last line says what was delivered all the same.
PRODUCE_STATUSES = (0, 1)


@dataclass(frozen=True)
class Load:
    """One client run against one topic: what it moved, what it cost, how many records each request carried."""

    transfer: parse.Transfer
    finished: Finished
    messages_per_request: float | None


class Librdkafka:
    """Runs `rdkafka_performance`; `program` is what `build` returned.  `core`: the only processor that it gets."""

    def __init__(self, program: Path, core: int | None = None) -> None:
        self.program = program
        self._front: list[str | Path] = [] if core is None else ["taskset", "-c", str(core)]

    def on(self, core: int) -> "Librdkafka":
        """The same client, which gets this processor and no other."""
        return Librdkafka(self.program, core)

    def produce(
        self, bootstrap: str, topic: str, *, size: int, count: int, settings: Sequence[str] = ()
    ) -> Load:
        """`count` messages of `size` bytes with acks=all, to random partitions; `settings` are key=value."""
        arguments = ["-P", "-s", str(size), "-a", "-1"]
        arguments += _options([f"linger.ms={LINGER_MS}", *settings])
        return self._run("Produce", parse.produced, bootstrap, topic, count, arguments, PRODUCE_STATUSES)

    def consume(
        self, bootstrap: str, topic: str, *, partitions: int, count: int, settings: Sequence[str] = ()
    ) -> Load:
        """`count` messages from the beginning of every partition, without a group."""
        arguments = ["-C", "-o", "beginning", *_options(settings)]
        for partition in range(partitions):
            arguments += ["-p", str(partition)]
        return self._run("Fetch", parse.consumed, bootstrap, topic, count, arguments)

    @contextlib.contextmanager
    def flood(self, bootstrap: str, topic: str, *, size: int, settings: Sequence[str] = ()) -> Iterator[None]:
        """Produce without end, as `produce`, for the time of the block.  RunFailed when the client ends before."""
        command = [str(self.program), "-P", "-s", str(size), "-a", "-1", "-b", bootstrap, "-t", topic, "-q"]
        command += _options([f"linger.ms={LINGER_MS}", *settings])
        with process.running(command) as client:
            yield
            if client.poll() is not None:
                raise RunFailed(f"{self.program.name} ended with {client.returncode} before it was to")

    def _run(
        self,
        request: str,
        read: Callable[[str, int], parse.Transfer],
        bootstrap: str,
        topic: str,
        count: int,
        arguments: Sequence[str],
        statuses: Collection[int] = (0,),
    ) -> Load:
        command: list[str | Path] = [
            *self._front,
            self.program,
            *arguments,
            "-b",
            bootstrap,
            "-t",
            topic,
            "-c",
            str(count),
            "-q",
        ]
        with tempfile.TemporaryDirectory() as folder:
            statistics = Path(folder) / "statistics.jsonl"
            # It hands its statistics to a shell command; the path goes by environment so that no quoting is needed.
            command += ["-T", str(STATISTICS_MS), "-Y", 'cat >"$BENCH_STATISTICS"']
            environment = {"BENCH_STATISTICS": str(statistics)}
            finished = process.run(
                command, seconds_max=RUN_SECONDS_MAX, environment=environment, statuses=statuses
            )
            text = statistics.read_text() if statistics.exists() else ""
        try:
            transfer = read(finished.output, count)
        except parse.ParseError as error:
            raise RunFailed(str(error)) from error
        return Load(transfer, finished, parse.messages_per_request(text, request))


class KafkaTools:
    """Kafka's own Java tools, through the peers' script: latency at a fixed rate, share groups, and quotas."""

    def __init__(self, script: Path) -> None:
        self.script = script

    def run(
        self, bootstrap: str, topic: str, *, size: int, rate: int, warm_up_seconds: int, seconds: int
    ) -> parse.Latency:
        command: list[str | Path] = [self.script, "tool", "org.apache.kafka.tools.ProducerPerformance"]
        command += ["--bootstrap-server", bootstrap, "--topic", topic, "--record-size", str(size)]
        command += ["--throughput", str(rate), "--num-records", str(rate * (warm_up_seconds + seconds))]
        command += ["--warmup-records", str(rate * warm_up_seconds)]
        command += ["--command-property", "acks=all", f"linger.ms={LINGER_MS}"]
        finished = process.run(
            command,
            seconds_max=RUN_SECONDS_MAX + warm_up_seconds + seconds,
            environment={"KAFKA_HEAP": JAVA_HEAP},
        )
        try:
            return parse.latency(finished.output)
        except parse.ParseError as error:
            raise RunFailed(str(error)) from error

    def share(self, bootstrap: str, topic: str, group: str, *, size: int, count: int, consumers: int) -> Load:
        """`count` messages of `size` bytes to the consumers of a share group, each in a thread of one process."""
        command: list[str | Path] = [self.script, "tool", "org.apache.kafka.tools.ShareConsumerPerformance"]
        command += ["--bootstrap-server", bootstrap, "--topic", topic, "--group", group]
        command += ["--num-records", str(count), "--threads", str(consumers)]
        command += ["--timeout", str(SHARE_WAIT_MS)]
        finished = process.run(
            command, seconds_max=RUN_SECONDS_MAX, environment={"KAFKA_HEAP": SHARE_JAVA_HEAP}
        )
        try:
            return Load(parse.shared(finished.output, count, size), finished, None)
        except parse.ParseError as error:
            raise RunFailed(str(error)) from error

    def set_client_quota(self, bootstrap: str, client_id: str, bytes_per_second: int | None) -> None:
        """What clients of an id may produce, by Kafka's `kafka-configs`; None takes the quota away."""
        command: list[str | Path] = [self.script, "tool", "kafka.admin.ConfigCommand"]
        command += ["--bootstrap-server", bootstrap, "--alter", "--entity-type", "clients"]
        command += ["--entity-name", client_id]
        if bytes_per_second is None:
            command += ["--delete-config", "producer_byte_rate"]
        else:
            command += ["--add-config", f"producer_byte_rate={bytes_per_second}"]
        process.run(command, seconds_max=RUN_SECONDS_MAX, environment={"KAFKA_HEAP": JAVA_HEAP})


def build(work: Path, say: Callable[[str], None], *, tls: bool = False) -> Path:
    """The built `rdkafka_performance`; fetches and compiles it (about a minute) the first time.

    `tls`: one that speaks TLS, which takes OpenSSL's headers.  It is a program of its own, so that every other measure
    has the same client on all machines.

    Raises RunFailed with one sentence when a tool is missing or a step fails.
    """
    program = work / f"rdkafka_performance-{PACKAGE_VERSION}{'-tls' if tls else ''}"
    if program.exists():
        return program
    missing = [tool for tool in ("npm", "gcc", "make") if shutil.which(tool) is None]
    if missing:
        raise RunFailed(f"building rdkafka_performance needs {', '.join(missing)} on PATH")
    say(f"building rdkafka_performance (librdkafka {LIBRDKAFKA_VERSION}) once, about a minute ...")
    work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=work, prefix="build-") as name:
        folder = Path(name)
        archive = _fetch(folder)
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        sources = folder / "package" / "deps" / "librdkafka"
        jobs = f"-j{os.cpu_count() or 1}"
        for command in (
            ["./configure", *CONFIGURE, *(["--enable-ssl"] if tls else [WITHOUT_TLS])],
            ["make", jobs, "-C", "src", "librdkafka.a"],
            ["make", "-C", "examples", "rdkafka_performance"],
        ):
            process.run(["env", "-C", sources, *command], seconds_max=900)
        built = sources / "examples" / "rdkafka_performance"
        shutil.copy2(built, built.with_suffix(".done"))
        built.with_suffix(".done").rename(program)  # all or nothing: an interrupted build leaves no program
    return program


def _fetch(folder: Path) -> Path:
    process.run(
        ["env", "-C", folder, "npm", "pack", "--silent", f"{PACKAGE}@{PACKAGE_VERSION}"], seconds_max=300
    )
    archive = folder / f"{PACKAGE}-{PACKAGE_VERSION}.tgz"
    if not archive.exists():
        raise RunFailed(f"npm pack left no {archive.name}")
    digest = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != PACKAGE_SHA512:
        raise RunFailed(f"{archive.name} is not the file that was pinned: its SHA-512 is {digest}")
    return archive


def _options(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("-X", setting)]
