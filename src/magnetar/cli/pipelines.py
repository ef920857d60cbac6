"""`magnetar pipelines`: declare, list, start and stop pipelines."""

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.cli.given import text_of_file, text_of_input
from magnetar.cli.output import Output, OutputOption, WatchOption, print_json, print_table, say, watched
from magnetar.cli.reaching import with_client
from magnetar.client.pipelines import Pipeline, PipelinesClient, Row

app = typer.Typer(help="Declare, list, start and stop pipelines.", rich_markup_mode=None)

FILE_BYTES_MAX: Final = 1 << 20

_LOOK_EVERY_S: Final = 0.5
_SPEC_KEYS: Final = {"name", "kind", "config"}


class PipelineFailed(MagnetarError):
    """The pipeline for which the command waits has failed; the text says why."""


Name = Annotated[str, typer.Argument(metavar="NAME", help="The pipeline's name.")]
Wait = Annotated[
    float, typer.Option("--wait", metavar="S", min=0, help="Wait for it, S seconds at most [0].")
]


@app.callback()
def root() -> None:
    """Declare, list, start and stop pipelines."""


@app.command()
@with_client
def create(
    client: PipelinesClient,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The pipeline's name, if the file has none.")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="YAML or JSON: name, kind, config; - is stdin."),
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", metavar="KIND", help="The kind: query or table.")
    ] = None,
    config: Annotated[
        str | None, typer.Option("--config", metavar="JSON", help="The configuration, as JSON.")
    ] = None,
    start: Annotated[bool, typer.Option("--start/--no-start", help="Start it at once, or not.")] = True,
    wait_s: Wait = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Declare a pipeline, from a file or from options."""
    spec = {} if file is None else _spec_in(file)
    if kind is not None:
        spec["kind"] = kind
    if config is not None:
        spec["config"] = _parsed(config, "--config")
    if name is not None:
        spec["name"] = name
    for key in ("name", "kind"):
        if not isinstance(spec.get(key), str):
            raise ConfigError(
                f"the pipeline needs a {key}: give it in a file (--file) or on the command line"
            )
    given = spec.get("config") or {}
    if not isinstance(given, Mapping):
        raise ConfigError("config must be an object")
    made = client.create(spec["name"], spec["kind"], given, start=start)
    if start:
        made = _until(client, made, "RUNNING", wait_s)
    _show(made, output)


@app.command("list")
@with_client
def list_pipelines(
    client: PipelinesClient, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """List all pipelines: their states and their lag."""
    watched(watch, lambda: _list(client.all(), output))


@app.command()
@with_client
def status(
    client: PipelinesClient, name: Name, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """Show one pipeline and its state."""
    watched(watch, lambda: _show(client.get(name), output))


@app.command()
@with_client
def stats(
    client: PipelinesClient, name: Name, watch: WatchOption = False, output: OutputOption = Output.TABLE
) -> None:
    """Show a pipeline's numbers: rows, bytes, rates, batches, durations, errors, lag of each partition."""
    watched(watch, lambda: _show_numbers(client.stats(name), output))


@app.command()
@with_client
def start(
    client: PipelinesClient,
    name: Name,
    wait_s: Wait = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Start a pipeline; one that has failed is tried again."""
    _show(_until(client, client.start(name), "RUNNING", wait_s), output)


@app.command()
@with_client
def stop(
    client: PipelinesClient,
    name: Name,
    wait_s: Wait = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a pipeline; when it starts again, it continues from there."""
    _show(_until(client, client.stop(name), "STOPPED", wait_s), output)


@app.command()
@with_client
def restart(
    client: PipelinesClient,
    name: Name,
    wait_s: Wait = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Stop a pipeline and start it again; it continues from its position."""
    _show(_until(client, client.restart(name), "RUNNING", wait_s), output)


@app.command()
@with_client
def delete(
    client: PipelinesClient,
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Do not wait until the worker has stopped it.")
    ] = False,
) -> None:
    """Delete a pipeline, its position in its topics and its checkpoint; its output stays."""
    found = client.get(name)
    what = f"pipeline {name} ({found.kind}, {found.state}) and the subscription {found.subscription}"
    if dry_run:
        print(f"would delete the {what}", file=sys.stderr)
        return
    if not yes:
        if not sys.stdin.isatty():
            raise ConfigError(f"this deletes the {what}: say --yes")
        if not typer.confirm(f"Delete the {what}?", err=True):
            return
    is_gone = client.delete(name, force=force)
    print(f"{name} is {'deleted' if is_gone else 'being deleted'}", file=sys.stderr)


# --- reading ------------------------------------------------------------------------------------------------------


def _spec_in(file: Path) -> dict[str, Any]:
    """The pipeline that a file declares."""
    where = "the input" if str(file) == "-" else str(file)
    text = text_of_input(FILE_BYTES_MAX) if str(file) == "-" else text_of_file(file, FILE_BYTES_MAX)
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{where} is larger than {FILE_BYTES_MAX} bytes")
    import yaml

    try:
        spec = yaml.safe_load(text)  # JSON is YAML, too
    except yaml.YAMLError as error:
        raise ConfigError(f"{where} is neither YAML nor JSON: {' '.join(str(error).split())[:300]}") from None
    if not isinstance(spec, dict):
        raise ConfigError(f"{where} must be an object with name, kind and config")
    unknown = [str(key) for key in spec if key not in _SPEC_KEYS]
    if unknown:
        raise ConfigError(f"{where} has the key {unknown[0][:100]}: a pipeline has name, kind and config")
    return spec


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where} is not JSON: {error}") from None


def _until(client: PipelinesClient, pipeline: Pipeline, state: str, wait_s: float) -> Pipeline:
    """Wait until the pipeline is in that state, or for `wait_s`; returns it.  Raises PipelineFailed if it fails
    first.
    """
    give_up_at = time.monotonic() + wait_s
    said = ""
    while pipeline.state != state and time.monotonic() < give_up_at:
        if pipeline.state == "FAILED" and state == "RUNNING":
            raise PipelineFailed(f"{pipeline.name} has failed: {pipeline.reason}")
        line = f"{pipeline.name}: {pipeline.state} {pipeline.reason}".rstrip()
        if line != said:
            say(line)
            said = line
        time.sleep(_LOOK_EVERY_S)
        pipeline = client.get(pipeline.name)
    return pipeline


# --- showing ------------------------------------------------------------------------------------------------------


def _list(rows: Sequence[Row], output: Output) -> None:
    if output is Output.JSON:
        print_json([_row_fields(row) for row in rows])
        return
    print_table(
        ("name", "kind", "state", "lag", "lag s", "rows", "bytes", "rows/s", "errors", "restarts", "reason"),
        [
            (
                row.name,
                row.kind,
                row.state,
                _number(row.lag),
                _number(row.lag_s),
                _number(row.rows),
                _number(row.bytes),
                _number(row.rows_per_second),
                _number(row.errors),
                _number(row.restarts),
                row.reason,
            )
            for row in rows
        ],
        numbers=("lag", "lag s", "rows", "bytes", "rows/s", "errors", "restarts"),
    )


def _show_numbers(found: Mapping[str, Any], output: Output) -> None:
    if output is Output.JSON:
        print_json(found)
    else:
        print_table(("number", "value"), _flat(found))


def _show(pipeline: Pipeline, output: Output) -> None:
    if output is Output.JSON:
        print_json(_fields(pipeline))
        return
    rows = [
        ("name", pipeline.name),
        ("kind", pipeline.kind),
        ("state", pipeline.state),
        ("reason", pipeline.reason),
        ("desired", pipeline.desired),
        ("subscription", pipeline.subscription),
        ("config", json.dumps(pipeline.config)),
        *_flat(pipeline.status),
    ]
    print_table(("", "value"), [row for row in rows if row[1]])


def _fields(pipeline: Pipeline) -> dict[str, Any]:
    """The pipeline for programs, with the names of REST."""
    return {
        "name": pipeline.name,
        "id": pipeline.id,
        "kind": pipeline.kind,
        "config": pipeline.config,
        "desired": pipeline.desired,
        "run": pipeline.run,
        "subscription": pipeline.subscription,
        "created_ms": pipeline.created_ms,
        "state": pipeline.state,
        "reason": pipeline.reason,
        "status": pipeline.status,
    }


def _row_fields(row: Row) -> dict[str, Any]:
    return {
        "name": row.name,
        "kind": row.kind,
        "desired": row.desired,
        "state": row.state,
        "reason": row.reason,
        "lag": row.lag,
        "lag_s": row.lag_s,
        "rows": row.rows,
        "bytes": row.bytes,
        "rows_per_second": row.rows_per_second,
        "errors": row.errors,
        "restarts": row.restarts,
        "last_error": row.last_error,
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """The rows of a nested object, one for each value in it."""
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            rows += _flat(value, f"{name} ")
        elif value is not None:
            rows.append((name, value if isinstance(value, str) else _number(value)))
    return rows


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "" if value is None else str(value)
