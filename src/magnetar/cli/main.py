"""The `magnetar` command: noun, then verb.

Data goes to standard output, messages to standard error.  An error that the user can fix is one sentence and exit
code 2; exit code 1 means that something failed while it ran.  Commands import what they need when they run, so that
`--help` is fast.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - a source tree is run without asking pip
    sys.exit(f"magnetar: Python 3.11 or newer is needed, this is {sys.version.split()[0]}")

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.base.private import new_private_folder
from magnetar.cli import (
    acls,
    clone,
    config,
    context,
    doctor,
    links,
    namespaces,
    permissions,
    persistent,
    pipelines,
    replicator_service,
    sql,
    tokens,
    users,
    worker,
)
from magnetar.cli.output import say

EXIT_USER_ERROR: Final = 2
EXIT_FAILED: Final = 1
EXIT_INTERRUPTED: Final = 130

# typer has its own copy of click; the base class of its usage errors is only reachable like this.
UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="magnetar",
    help="A messaging and streaming server that speaks the Apache Kafka and Apache Pulsar protocols.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(acls.app, name="acls")
app.add_typer(config.app, name="config")
app.add_typer(context.app, name="context")
app.add_typer(links.app, name="links")
app.add_typer(namespaces.app, name="namespaces")
app.add_typer(permissions.app, name="permissions")
app.add_typer(persistent.app, name="persistent")
app.add_typer(pipelines.app, name="pipelines")
app.add_typer(tokens.app, name="tokens")
app.add_typer(users.app, name="users")
app.command("clone")(clone.clone)
app.command("worker")(worker.worker)
app.command("replicator-service")(replicator_service.replicator_service)
app.command("sql")(sql.sql)
app.command("doctor")(doctor.doctor)


def main() -> None:
    """The console script: runs one command and ends the process with its exit code."""
    sys.exit(run(sys.argv[1:]))


@cache
def commands() -> typer.core.TyperGroup:
    """All commands: typer makes them of their functions' annotations, which takes a twentieth of a second."""
    made = typer.main.get_command(app)
    assert isinstance(made, typer.core.TyperGroup)
    return made


def run(arguments: list[str]) -> int:
    """Run one command line; returns the exit code.  An error of the user is printed as one sentence, never as a
    traceback.
    """
    try:
        code = commands().main(arguments or ["--help"], prog_name="magnetar", standalone_mode=False)
    except UsageError as error:
        return _complain(f"{_message(error)} (magnetar --help lists what there is)", EXIT_USER_ERROR)
    except ConfigError as error:
        return _complain(str(error), EXIT_USER_ERROR)
    except MagnetarError as error:
        return _complain(str(error), EXIT_FAILED)
    except OSError as error:
        return _complain(_explain(error), EXIT_USER_ERROR)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return code if isinstance(code, int) else 0


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"magnetar {version('magnetar')}")
        raise typer.Exit


@app.callback()
def root(
    show_version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and end."),
    ] = False,
) -> None:
    """A messaging and streaming server that speaks the Apache Kafka and Apache Pulsar protocols."""


@app.command()
def standalone(
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", metavar="DIR", help="The folder for all data [magnetar-data]."),
    ] = None,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="The address to listen on [localhost].")
    ] = None,
    kafka_port: Annotated[
        int | None,
        typer.Option("--kafka-port", metavar="PORT", help="For Kafka clients; 0 is a free port [9092]."),
    ] = None,
    pulsar_port: Annotated[
        int | None,
        typer.Option("--pulsar-port", metavar="PORT", help="For Pulsar clients; 0 is a free port [6650]."),
    ] = None,
    http_port: Annotated[
        int | None,
        typer.Option("--http-port", metavar="PORT", help="For REST and metrics; 0 is a free port [8080]."),
    ] = None,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="Create certificates and keys, and turn TLS, logins and rights on."),
    ] = False,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", help="How many broker ids to serve from this process [1]."),
    ] = None,
    config_file: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="A properties file with Kafka's or KoP's keys."),
    ] = None,
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key; can be given many times.")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error [info].")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option("--log-format", metavar="FORMAT", help="text or json [text].")
    ] = None,
) -> None:
    """Run the server in this process until SIGTERM."""
    from magnetar.server.garbage import paused

    flags = {
        "data.dir": data_dir,
        "host": host,
        "kafka.port": kafka_port,
        "pulsar.port": pulsar_port,
        "http.port": http_port,
        "nodes": nodes,
        "secure": True if secure else None,
        "log.level": log_level,
        "log.format": log_format,
    }
    with paused():
        code = _serve(
            config_file,
            assignments or (),
            {key: str(value) for key, value in flags.items() if value is not None},
        )
    raise typer.Exit(code)


def _serve(config_file: Path | None, assignments: Sequence[str], flags: Mapping[str, str]) -> int:
    """Run the server; returns its exit code.  Raises ConfigError."""
    from magnetar.base.logging import configure_logging
    from magnetar.base.settings import load_settings

    try:
        settings = load_settings(
            file=config_file, environment=os.environ, assignments=assignments, flags=flags
        )
    except OSError as error:
        raise ConfigError(f"configuration file {config_file} cannot be read: {error.strerror}") from error
    configure_logging(settings.log.level, settings.log.format)
    try:
        new_private_folder(settings.data_dir)
    except OSError as error:
        raise ConfigError(
            f"data dir {settings.data_dir} cannot be made: {error.strerror}; choose another one with"
            " --data-dir"
        ) from error
    from magnetar.server import standalone as server

    try:
        return server.run(settings)
    except OSError as error:
        if error.filename is None or not Path(str(error.filename)).is_relative_to(settings.data_dir):
            raise
        raise ConfigError(
            f"data dir {settings.data_dir} cannot be used: {error.strerror} ({error.filename});"
            " fix it, or choose another one with --data-dir"
        ) from error


def _complain(sentence: str, code: int) -> int:
    say(f"magnetar: {sentence}")
    return code


def _message(error: Exception) -> str:
    format_message = getattr(error, "format_message", None)
    text = format_message() if format_message is not None else str(error)
    return " ".join(str(text).split()).rstrip(".")


def _explain(error: OSError) -> str:
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename is not None else reason
