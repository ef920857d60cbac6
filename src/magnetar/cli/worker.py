"""`magnetar worker`: run the pipelines that are declared to a server."""

from pathlib import Path
from typing import Annotated, Final

import typer

from magnetar.base.paths import absolute_path
from magnetar.cli.logs import LogFormat, LogLevel, log_as_asked
from magnetar.cli.reaching import Context, Url, reached

FOLDER: Final = "pipelines"  # in the data directory


def worker(
    url: Url = "",
    context: Context = "",
    data_dir: Annotated[
        Path, typer.Option("--data-dir", metavar="DIR", help="Checkpoints are kept in DIR/pipelines.")
    ] = Path("magnetar-data"),
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option("--checkpoint-dir", metavar="DIR", help="Another folder for the checkpoints."),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            envvar="MAGNETAR_WORKER_TOKEN_FILE",
            help="A copy of worker-token of the server's data folder [DIR/worker-token].",
        ),
    ] = None,
    master: Annotated[
        str,
        typer.Option("--master", metavar="MASTER", help="Spark's master, such as spark://host:7077."),
    ] = "local[*]",
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="The memory of Spark's driver, such as 2g.")
    ] = "1g",
    log_level: LogLevel = "info",
    log_format: LogFormat = "text",
    with_parent: Annotated[
        bool, typer.Option("--with-parent", help="End when standard input ends.", hidden=True)
    ] = False,
) -> None:
    """Run the declared pipelines on Spark until SIGTERM; only one worker runs at a time, and others wait."""
    from magnetar.base.worker_token import NAME

    log_as_asked(log_level, log_format)
    from magnetar.pipelines.spark.databases import FOLDER as JDBC
    from magnetar.pipelines.spark.databases import Databases
    from magnetar.pipelines.worker.process import WorkerOptions, run

    folder = absolute_path("--checkpoint-dir", checkpoint_dir or data_dir / FOLDER)
    token = absolute_path("--token-file", token_file or data_dir / NAME)
    databases = Databases(absolute_path("--data-dir", data_dir / JDBC))
    server = reached(url, context)
    raise typer.Exit(run(WorkerOptions(server, folder, token, master, memory, databases, with_parent)))
