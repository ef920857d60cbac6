"""The output of commands: tables for users, JSON for programs.

What a server says may be another user's text.  A terminal gets none of its control characters.
"""

import json
import sys
import time
from collections.abc import Callable, Collection, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final

import typer

from magnetar.base.logging import printable

WATCH_S: Final = 2.0
TABLE_COLUMNS_MIN: Final = 160  # if the output is no terminal, so that lines can be searched


class Output(StrEnum):
    TABLE = "table"
    JSON = "json"


OutputOption = Annotated[Output, typer.Option("--output", "-o", help="table or json.")]


WatchOption = Annotated[
    bool, typer.Option("--watch", "-w", help=f"Show it again every {WATCH_S:g} s, until Ctrl-C.")
]


def watched(again: bool, show: Callable[[], None]) -> None:
    """Call `show`, with `again` for ever; on a terminal each time at its top."""
    while True:
        if again and sys.stdout.isatty():
            print("\x1b[H\x1b[2J", end="")
        show()
        if not again:
            return
        sys.stdout.flush()
        time.sleep(WATCH_S)


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2))


def say(sentence: str) -> None:
    """Tell the user something, beside the output."""
    print(printable(sentence), file=sys.stderr, flush=True)


def print_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = frozenset()
) -> None:
    """Print a table; `numbers` are the columns that are aligned to the right."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=TABLE_COLUMNS_MIN)
    table = Table(box=box.SIMPLE_HEAD)
    for name in names:
        table.add_column(name, overflow="fold", justify="right" if name in numbers else "left")
    for row in rows:
        table.add_row(*map(printable, row))
    console.print(table, markup=False)
