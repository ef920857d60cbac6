"""`magnetar config`: the server's settings."""

import typer

from magnetar.cli.output import TABLE_COLUMNS_MIN, Output, OutputOption, print_json

app = typer.Typer(help="Show what can be set.", rich_markup_mode=None)


@app.callback()
def root() -> None:
    """Show what can be set."""


@app.command("list")
def list_keys(
    output: OutputOption = Output.TABLE,
) -> None:
    """List every key of the server: its default, its range and what it does."""
    from magnetar.base.config import TYPE_WORDS
    from magnetar.base.settings_sources import environment_name
    from magnetar.base.settings_table import SERVER_KEYS

    if output is Output.JSON:
        rows = [
            {
                "key": key.name,
                "section": key.section.value,
                "type": TYPE_WORDS[key.type],
                "default": key.default,
                "allowed": key.allowed or None,
                "aliases": [alias.name for alias in key.aliases],
                "environment": environment_name(key.name),
                "effect": not key.no_effect,
                "doc": key.doc,
            }
            for key in SERVER_KEYS.values()
        ]
        print_json(rows)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_COLUMNS_MIN)
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("key", no_wrap=True)
    table.add_column("default", overflow="fold")
    table.add_column("what it does")
    for key in SERVER_KEYS.values():
        what = f"{key.doc} No effect: {key.no_effect}." if key.no_effect else key.doc
        table.add_row(key.name, key.default_words if key.default is None else key.default, what)
    console.print(table, markup=False)
