"""`magnetar sql`: SQL over topics."""

from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.errors import ConfigError
from magnetar.cli.reaching import Context, Url, reached

_OUTPUTS: Final = ("table", "json", "csv", "parquet")


def sql(
    statement: Annotated[
        str | None,
        typer.Argument(metavar="[STATEMENT]", help="The SQL to run, with `;` between statements [a prompt]."),
    ] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FORMAT", help="table, json, csv or parquet [table].")
    ] = "table",
    output_file: Annotated[
        Path | None,
        typer.Option("--output-file", metavar="FILE", help="The file for the rows [standard output]."),
    ] = None,
    url: Url = "",
    context: Context = "",
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="MASTER", help="Spark's master, such as spark://host:7077 [this machine]."
        ),
    ] = None,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", help="How many rows a table shows at most [1000].", min=1)
    ] = 1_000,
) -> None:
    """Query topics as tables: one statement, or a prompt."""
    if output not in _OUTPUTS:
        raise ConfigError(f"--output {output} is not known: it is one of {', '.join(_OUTPUTS)}")
    server = reached(url, context)
    from magnetar.pipelines.sql import shell

    raise typer.Exit(
        shell.run(
            statement, output=output, output_file=output_file, server=server, master=master, rows_max=rows
        )
    )
