"""`magnetar persistent`: the replicators of a topic (PIP-18): start, stop, take out, look at.

The commands and their options are PIP-18's.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from magnetar.base.errors import ConfigError
from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.cli.output import Output, OutputOption, WatchOption, print_json, print_table, watched
from magnetar.cli.reaching import with_replicators
from magnetar.client.replicators import ReplicatorsClient

app = typer.Typer(
    help="Start, stop, register, deregister and show the replicators of a topic.", rich_markup_mode=None
)


class Action(StrEnum):
    START = "Start"
    STOP = "Stop"
    RESTART = "Restart"


Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="persistent://tenant/namespace/topic, or tenant/namespace/topic."),
]
Type = Annotated[
    str, typer.Option("--replicator-type", "-r", metavar="TYPE", help="The type, such as Kafka.")
]
RegionName = Annotated[
    str, typer.Option("--region-name", metavar="NAME", help="Only the replicator to this region.")
]


@app.callback()
def root() -> None:
    """Start, stop, register, deregister and show the replicators of a topic."""


@app.command("update-replicator")
@with_replicators
def update_replicator(
    replicators: ReplicatorsClient,
    topic: Topic,
    type_name: Type,
    action: Annotated[
        Action,
        typer.Option(
            "--action", "-a", case_sensitive=False, help="Start, Stop (it keeps its place) or Restart."
        ),
    ],
    region: RegionName = "",
) -> None:
    """Start, stop or restart a topic's replicator."""
    replicators.update(_parsed(topic), type_name, action.value, region or None)


@app.command("register-replicator")
@with_replicators
def register_replicator(
    replicators: ReplicatorsClient, topic: Topic, type_name: Type, region: RegionName = ""
) -> None:
    """Replicate a deregistered topic again, from its present end on."""
    replicators.register(_parsed(topic), type_name, region or None)


@app.command("deregister-replicator")
@with_replicators
def deregister_replicator(
    replicators: ReplicatorsClient, topic: Topic, type_name: Type, region: RegionName = ""
) -> None:
    """Stop a topic's replicator for good, and drop its subscription."""
    replicators.deregister(_parsed(topic), type_name, region or None)


@app.command("replicator-stats")
@with_replicators
def replicator_stats(
    replicators: ReplicatorsClient,
    topic: Topic,
    watch: WatchOption = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show what each replicator of a topic does, and how far it is."""
    name = _parsed(topic)
    watched(watch, lambda: _show_statistics(replicators.statistics(name), output))


def _show_statistics(found: Mapping[str, Mapping[str, Any]], output: Output) -> None:
    if output is Output.JSON:
        print_json(found)
        return
    rows = [
        (
            kind,
            region,
            str(one.get("target", "")),
            str(one.get("state", "")) + (", held by its rate" if one.get("heldByDispatchRate") else ""),
            _number(one.get("msgBacklog")),
            _number(one.get("msgOutCounter")),
            _number(one.get("msgRateOut")),
            str(one.get("lastError", "")),
        )
        for kind, regions in sorted(found.items())
        for region, one in sorted(regions.items())
    ]
    print_table(
        ("type", "region", "target", "state", "backlog", "out", "out/s", "last error"),
        rows,
        numbers=("backlog", "out", "out/s"),
    )


def _parsed(topic: str) -> TopicName:
    """Raises ConfigError."""
    try:
        if "/" not in topic:
            raise ConfigError(f"{topic[:200]!r} is not tenant/namespace/topic")
        return TopicName.parse(topic)
    except InvalidTopicName as error:
        raise ConfigError(str(error)) from None


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else ""
