"""`magnetar links`: the topics that are copies of another cluster's; `magnetar clone` makes them."""

import sys
from typing import Annotated

import typer

from magnetar.cli.output import Output, OutputOption, print_json, print_table
from magnetar.cli.reaching import with_links
from magnetar.client.links import LinksClient

app = typer.Typer(help="List linked topics, and cut them loose.", rich_markup_mode=None)


@app.callback()
def root() -> None:
    """List linked topics, and cut them loose."""


@app.command("list")
@with_links
def list_links(links: LinksClient, output: OutputOption = Output.TABLE) -> None:
    """List linked topics: where each comes from, how many records it is behind, and its last error."""
    found = links.all()
    if output is Output.JSON:
        print_json(
            [
                {
                    "topic": one.topic,
                    "source": one.source,
                    "created_ms": one.created_ms,
                    "lag": one.lag,
                    "error": one.error,
                    "reported_ms": one.reported_ms,
                }
                for one in found
            ]
        )
        return
    rows = [(one.topic, one.source, "" if one.lag is None else f"{one.lag:,}", one.error) for one in found]
    print_table(("topic", "source", "lag", "error"), rows, {"lag"})


@app.command()
@with_links
def cut(
    links: LinksClient,
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="Names as Kafka clients use them.")],
) -> None:
    """Cut topics loose: from now on producers may write to them, and their links do not."""
    for topic in topics:
        links.cut(topic)
        print(f"{topic} is cut loose", file=sys.stderr)
