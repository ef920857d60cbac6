"""`magnetar sql` from its start to its exit code: the server, Spark, then statements.

Data goes to standard output, everything else to standard error.
"""

import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from magnetar.base.errors import ConfigError
from magnetar.base.logging import printable
from magnetar.client.login import Server
from magnetar.pipelines.spark.setup import ensure_spark
from magnetar.pipelines.sql import prompt
from magnetar.pipelines.sql.engine import Engine
from magnetar.pipelines.sql.errors import QueryCancelled
from magnetar.pipelines.sql.output import Format, sink, write
from magnetar.pipelines.sql.running import Runner
from magnetar.pipelines.sql.server_topics import ServerTopics
from magnetar.pipelines.sql.session import open_session
from magnetar.pipelines.sql.statements import is_blank, split

if TYPE_CHECKING:
    from rich.console import Console

EXIT_INTERRUPTED: Final = 130


def run(
    text: str | None,
    *,
    output: str,
    output_file: Path | None,
    server: Server,
    master: str | None,
    rows_max: int,
) -> int:
    """Run the statements of `text`; if it is None, those of standard input, or those that a user types.

    Returns the exit code.  Raises ConfigError and MagnetarError, which the command line prints.
    """
    style = Format(output)
    statements = None if text is None else _statements(text)
    at_terminal = text is None and sys.stdin.isatty()
    _check_output(
        style, output_file, at_terminal=at_terminal, count=None if statements is None else len(statements)
    )
    from rich.console import Console

    console = Console(stderr=True, highlight=False, markup=False)
    with ServerTopics(server) as served:
        topics = served.topics()  # before Spark, which takes eight seconds, because there may be no server
        ensure_spark(console.print)
        with open_session(master, console) as spark:
            engine = Engine(spark, served, served.options)
            shell = Shell(engine, Runner(spark, console), console, style, output_file, rows_max)
            try:
                return shell.serve(statements, at_terminal=at_terminal, topic_count=len(topics))
            finally:
                shell.runner.close()


def _statements(text: str) -> list[str]:
    parts = split(text)
    found = [*parts.statements, *([] if is_blank(parts.rest) else [parts.rest.strip()])]
    if not found:
        raise ConfigError('there is no statement: try magnetar sql "show tables"')
    return found


def _check_output(style: Format, file: Path | None, *, at_terminal: bool, count: int | None) -> None:
    if style is Format.PARQUET and file is None and sys.stdout.isatty():
        raise ConfigError("Parquet is not for a terminal: name a file with --output-file")
    if file is not None and (at_terminal or (count or 0) > 1):
        raise ConfigError("--output-file takes the rows of one statement: give just one")
    if file is not None and not file.parent.is_dir():
        raise ConfigError(f"--output-file {file}: there is no directory {file.parent}")


class _OutputClosed(Exception):
    """The program that reads standard output has ended, such as `| head`."""


@dataclass
class Shell:
    """Passes statements to the engine, and rows to the output."""

    engine: Engine
    runner: Runner
    console: "Console"
    style: Format
    output_file: Path | None
    rows_max: int

    def serve(self, statements: list[str] | None, *, at_terminal: bool, topic_count: int) -> int:
        """Run all statements; returns the exit code."""
        try:
            if statements is not None:
                for statement in statements:
                    self.execute(statement)
            elif at_terminal:
                self.console.print(f"{topic_count} topics; `help` says more, Ctrl-D leaves")
                prompt.converse(self.execute, self.complain, lambda: self.engine.topic_names)
            else:
                prompt.read_all(sys.stdin, self.execute)
        except QueryCancelled as error:
            self.complain(error)
            return EXIT_INTERRUPTED
        except _OutputClosed:
            # Python would try to write the buffered rest again when it ends, and fail.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0

    def execute(self, statement: str) -> None:
        """Run one statement and write its rows."""
        begin = time.monotonic()
        rows_max = self.rows_max if self.style is Format.TABLE else None
        result = self.runner.run(lambda: self.engine.run(statement, rows_max))
        seconds = time.monotonic() - begin
        if result.rows.num_columns:
            width = self.console.width if self.style is Format.TABLE and sys.stdout.isatty() else None
            try:
                with sink(self.output_file) as stream:
                    write(result.rows, self.style, stream, width=width)
            except BrokenPipeError:
                raise _OutputClosed from None
        count = result.rows.num_rows
        said = f"{count} row{'' if count == 1 else 's'}"
        if result.cut:
            said = (
                f"the first {count} rows; there are more: --rows shows them, --output json or csv gives all"
            )
        self.console.print(f"({said}, {seconds:.2f} s)")

    def complain(self, error: Exception) -> None:
        """Print an error in the form of the command line's last error.  Spark's may show a user values of records."""
        text = "\n".join(map(printable, str(error).split("\n")))
        self.console.print(f"magnetar: {text}")
