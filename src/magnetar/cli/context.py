"""`magnetar context`: servers by name, for all other commands."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

from magnetar.base.contexts import Context, Contexts, check_name, default_file, read_contexts, write_contexts
from magnetar.base.errors import ConfigError
from magnetar.base.listeners import LOCALHOST, is_loopback
from magnetar.base.paths import absolute_path
from magnetar.cli.output import Output, OutputOption, print_json

app = typer.Typer(help="Name servers, and how to log in there.", rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context's name.")]


@app.callback()
def root() -> None:
    """Name servers, and how to log in there."""


@app.command()
def add(
    name: Name,
    url: Annotated[str, typer.Option("--url", metavar="URL", help="The server's HTTP address.")] = "",
    token_file: Annotated[
        Path | None, typer.Option("--token-file", metavar="FILE", help="A file that has the token.")
    ] = None,
    token_command: Annotated[
        str, typer.Option("--token-command", metavar="COMMAND", help="A command that prints the token.")
    ] = "",
    ca: Annotated[
        Path | None,
        typer.Option("--ca", metavar="FILE", help="Whose certificates are good [those of this machine]."),
    ] = None,
    kafka: Annotated[
        str,
        typer.Option(
            "--kafka",
            metavar="HOST:PORT",
            help="The addresses for Kafka clients [port 9092 of the URL's host].",
        ),
    ] = "",
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="All of it from a file, such as security/context.toml."),
    ] = None,
) -> None:
    """Name a server; the first one is used at once."""
    check_name(name)
    if source is not None:
        if url or token_file or token_command or ca or kafka:
            raise ConfigError("--from says all of a context: leave the other options out")
        made = read_contexts(source.absolute()).of("", source)
    elif url:
        made = Context(
            url, _absolute("--ca", ca), _absolute("--token-file", token_file), token_command, kafka
        )
    else:
        raise ConfigError("a context needs the address of a server: say --url, or --from a file")
    for needed in (made.ca, made.token_file):
        if needed and not Path(needed).is_file():
            raise ConfigError(f"there is no file {needed}")
    file, contexts = _mine()
    if name in contexts.by_name:
        raise ConfigError(f"there is a context {name} already: remove it first")
    changed = replace(contexts, by_name={**contexts.by_name, name: made}, current=contexts.current or name)
    write_contexts(file, changed)
    address = urlsplit(made.url)
    is_here = address.hostname == LOCALHOST or is_loopback(address.hostname or "")
    if address.scheme == "http" and (made.token_file or made.token_command) and not is_here:
        print(f"the token goes to {made.url} without TLS: machines on the way can read it", file=sys.stderr)
    print(f"{name} is added{' and used' if changed.current == name else ''}", file=sys.stderr)


@app.command()
def use(name: Name) -> None:
    """Use this server in commands that name none."""
    file, contexts = _mine()
    contexts.of(name, file)
    write_contexts(file, replace(contexts, current=name))


@app.command()
def remove(name: Name) -> None:
    """Forget a server; files that it names stay."""
    file, contexts = _mine()
    contexts.of(name, file)
    rest = {other: one for other, one in contexts.by_name.items() if other != name}
    write_contexts(file, Contexts(rest, "" if contexts.current == name else contexts.current))


@app.command("list")
def list_contexts(
    output: OutputOption = Output.TABLE,
) -> None:
    """List all contexts; the current one has a star."""
    _, contexts = _mine()
    rows = [
        {
            "name": name,
            "current": name == contexts.current,
            "url": one.url,
            "ca": one.ca,
            "token_file": one.token_file,
            "token_command": one.token_command,
            "kafka": one.kafka,
        }
        for name, one in sorted(contexts.by_name.items())
    ]
    if output is Output.JSON:
        print_json(rows)
        return
    for row in rows:
        print(f"{'*' if row['current'] else ' '} {row['name']}  {row['url']}")


def _mine() -> tuple[Path, Contexts]:
    file = default_file(os.environ)
    return file, read_contexts(file)


def _absolute(flag: str, file: Path | None) -> str:
    return "" if file is None else str(absolute_path(flag, file))
