"""`magnetar namespaces`: which topics of a namespace are replicated to external systems, and how (PIP-18).

The commands and their options are PIP-18's.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from magnetar.base.errors import ConfigError
from magnetar.base.names import InvalidTopicName, check_named_entity
from magnetar.cli.given import text_of_file, text_of_input
from magnetar.cli.output import Output, OutputOption, print_json, print_table
from magnetar.cli.reaching import with_replicators
from magnetar.client.replicators import ReplicatorsClient

app = typer.Typer(
    help="Add, list and remove configurations of replicators to external systems.", rich_markup_mode=None
)

JSON_CHARS_MAX: Final = 1 << 20
_FILE: Final = "@"
_INPUT: Final = "-"

Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="tenant/namespace.")]
Type = Annotated[str, typer.Option("--type", metavar="TYPE", help="The type of the system, such as Kafka.")]
RegionName = Annotated[
    str, typer.Option("--region-name", metavar="NAME", help="Your name for the system, or for its region.")
]


@app.callback()
def root() -> None:
    """Add, list and remove configurations of replicators to external systems."""


@app.command("add-repl-config")
@with_replicators
def add_repl_config(
    replicators: ReplicatorsClient,
    namespace: Namespace,
    type_name: Type,
    region: RegionName,
    mapping: Annotated[
        str,
        typer.Option(
            "--topicNameMapping",
            metavar="JSON",
            help="Where the records of each topic go: {topic or expression: target}; @FILE, or - for stdin.",
        ),
    ],
    properties: Annotated[
        str,
        typer.Option(
            "--replication-properties",
            metavar="JSON",
            help="The properties that the type needs; @FILE, or - for stdin.",
        ),
    ] = "{}",
    plugin: Annotated[
        str,
        typer.Option("--auth-plugin-name", metavar="NAME", help="The key store of the credentials [sealed]."),
    ] = "",
    auth_param: Annotated[
        str,
        typer.Option(
            "--auth-param",
            metavar="JSON",
            help="The credentials, as the key store needs them: @FILE, or - for stdin, which no other user can see.",
        ),
    ] = "{}",
) -> None:
    """Replicate topics of a namespace, also later ones; replaces the configuration of the same type and region."""
    given = [mapping, properties, auth_param]
    if given.count(_INPUT) > 1:
        raise ConfigError("only one of the options can be read from the input")
    policies = {
        "replicationProperties": _object("--replication-properties", properties),
        "authParamStorePluginName": plugin,
        "topicNameMapping": _object("--topicNameMapping", mapping),
    }
    credentials = _object("--auth-param", auth_param)
    replicators.add_config(_checked(namespace), type_name, region, policies, credentials)


@app.command("remove-repl-config")
@with_replicators
def remove_repl_config(
    replicators: ReplicatorsClient, namespace: Namespace, type_name: Type, region: RegionName
) -> None:
    """Remove a configuration, its credentials, and its replicators with their subscriptions."""
    replicators.remove_config(_checked(namespace), type_name, region)


@app.command("list-repl-config")
@with_replicators
def list_repl_config(
    replicators: ReplicatorsClient, namespace: Namespace, output: OutputOption = Output.TABLE
) -> None:
    """List the configurations of a namespace, without credentials."""
    found = replicators.configs(_checked(namespace))
    if output is Output.JSON:
        print_json(found)
        return
    rows = [
        (
            kind,
            region,
            _pairs(config.get("topicNameMapping")),
            _pairs(config.get("replicationProperties")),
            str(config.get("authParamStorePluginName", "")) if config.get("hasCredentials") else "",
            str(config.get("owner", "")),
        )
        for kind, regions in sorted(found.items())
        for region, config in sorted(regions.items())
    ]
    print_table(("type", "region", "topics", "properties", "credentials in", "owner"), rows)


def _checked(namespace: str) -> str:
    """Raises ConfigError."""
    tenant, slash, local = namespace.partition("/")
    try:
        check_named_entity("tenant", tenant)
        check_named_entity("namespace", local)
    except InvalidTopicName as error:
        if not slash:
            raise ConfigError(f"{namespace[:200]!r} is not tenant/namespace") from None
        raise ConfigError(str(error)) from None
    return namespace


def _object(option: str, text: str) -> Mapping[str, Any]:
    """The JSON object of an option.  No error repeats any of it, as it may be a secret.  Raises ConfigError."""
    if text == _INPUT:
        text = text_of_input(JSON_CHARS_MAX)
    elif text.startswith(_FILE):
        text = text_of_file(Path(text[1:]), JSON_CHARS_MAX)
    if len(text) > JSON_CHARS_MAX:
        raise ConfigError(f"{option} is longer than {JSON_CHARS_MAX} characters")
    try:
        found = json.loads(text)
    except ValueError:
        raise ConfigError(f"{option} is not JSON") from None
    if not isinstance(found, dict):
        raise ConfigError(f"{option} must be a JSON object")
    return found


def _pairs(found: Any) -> str:
    return "\n".join(f"{name}: {value}" for name, value in found.items()) if isinstance(found, dict) else ""
