"""The options of commands that run until they are stopped: what they log, and how."""

from typing import Annotated

import typer

from magnetar.base.errors import ConfigError

LogLevel = Annotated[str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")]
LogFormat = Annotated[str, typer.Option("--log-format", metavar="FORMAT", help="text or json.")]


def log_as_asked(level: str, line_format: str) -> None:
    """Write the log of this process as the options say.  Raises ConfigError: there is no such level or format."""
    from magnetar.base.logging import LEVELS, configure_logging

    if level not in LEVELS:
        raise ConfigError(f"--log-level must be one of {', '.join(LEVELS)}, not {level[:100]!r}")
    if line_format not in ("text", "json"):
        raise ConfigError(f"--log-format must be text or json, not {line_format[:100]!r}")
    configure_logging(level, line_format)
