"""`magnetar replicator-service`: sends on what Pulsar's brokers replicate to it."""

from pathlib import Path
from typing import Annotated

import typer

from magnetar.base.errors import ConfigError
from magnetar.cli.logs import LogFormat, LogLevel, log_as_asked


def replicator_service(
    config_file: Annotated[
        Path, typer.Option("--config", metavar="FILE", help="Which topics go where: a file of JSON.")
    ],
    listen: Annotated[
        str,
        typer.Option("--listen", metavar="HOST:PORT", help="Where brokers connect; port 0 is a free one."),
    ] = "127.0.0.1:6660",
    token_file: Annotated[
        Path | None,
        typer.Option("--token-file", metavar="FILE", help="The tokens that brokers may show, a line each."),
    ] = None,
    dead_letters: Annotated[
        Path | None,
        typer.Option("--dead-letters", metavar="DIR", help="A folder for what a target never takes."),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
) -> None:
    """Take what brokers of Apache Pulsar replicate, and send it to systems outside, until SIGTERM."""
    import os

    from magnetar.base.listeners import ANY_HOST, parse_address
    from magnetar.replicator_service.config import read_targets, read_tokens
    from magnetar.replicator_service.service import ServiceOptions, run

    log_as_asked(log_level, log_format)
    address = parse_address(listen)
    if address is None or address[0] in ANY_HOST:
        raise ConfigError(
            f"--listen must be host:port, and brokers must reach that host, not {listen[:200]!r}"
        )
    targets = read_targets(config_file, os.environ)
    tokens = () if token_file is None else read_tokens(token_file)
    raise typer.Exit(run(ServiceOptions(*address, targets, tokens, dead_letters)))
