"""What commands print of texts that are others'."""

import io
from typing import Any

import pytest
from rich.console import Console

from magnetar.base.errors import MagnetarError
from magnetar.cli.output import print_table, say
from magnetar.pipelines.sql.output import Format
from magnetar.pipelines.sql.shell import Shell

ODD = "a\x1b[2Jb\x07\x9b8m\u2028"
SHOWN = r"a\x1b[2Jb\x07\x9b8m\u2028"


def test_a_terminal_gets_no_control_characters_of_a_table_or_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Who may write to a linked topic says what its error is: the terminal of whoever lists links obeyed it."""
    print_table(("topic", "error"), [("t", ODD)])
    say(f"{ODD}\nmagnetar: all is well")
    said = capsys.readouterr()
    assert SHOWN in said.out
    assert "\x1b" not in said.out
    assert said.err == SHOWN + r"\x0amagnetar: all is well" + "\n"


def test_a_statements_error_keeps_its_lines_and_nothing_else() -> None:
    out = io.StringIO()
    nobody: Any = None
    shell = Shell(nobody, nobody, Console(file=out, markup=False), Format.TABLE, None, 1)
    shell.complain(MagnetarError(f"line 1\n{ODD}"))
    assert out.getvalue() == f"magnetar: line 1\n{SHOWN}\n"
