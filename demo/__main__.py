"""`python -m demo`: the story from the first flight to the verdict.  Exit status 0 if every promise was kept."""

import argparse
import contextlib
import sys
import uuid
from collections.abc import Iterator

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from demo import check
from demo.consumer import LOG_LEVEL
from demo.flights import Flights
from demo.group import VICTIM, Group, Story
from demo.stage import (
    REQUEST_SECONDS,
    create_topic,
    load,
    play,
    produce,
    progress_bars,
)
from magnetar.testing.server import MagnetarProcess


def main() -> int:
    parser = argparse.ArgumentParser(prog="demo", description=__doc__)
    parser.add_argument(
        "--bootstrap", metavar="HOST:PORT", help="a running server; without it the demo starts one"
    )
    parser.add_argument("--keep", action="store_true", help="leave the topic there (only with --bootstrap)")
    arguments = parser.parse_args()

    def story(console: Console) -> list[str]:
        with _server(arguments.bootstrap, console) as bootstrap:
            # A server of our own takes its data with it when it goes.
            return tell(bootstrap, console, keep=arguments.keep or arguments.bootstrap is None)

    return play(story, "Every flight arrived unchanged, in order per aircraft.")


def tell(bootstrap: str, console: Console, *, keep: bool) -> list[str]:
    """Produce, consume, judge; returns the promises that were broken."""
    data = load(console)
    topic = f"flights-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": LOG_LEVEL})
    create_topic(admin, bootstrap, topic)
    try:
        with progress_bars(console) as progress:
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
