"""Reads statements from a user or a pipe, one after the other, until there are no more.

At a terminal there is a prompt with line editing and a history.  Statements may have several lines and end with `;`;
Ctrl-C empties the line, and Ctrl-D ends the program.  After an error the prompt comes back.  From a pipe there is no
prompt, the last statement needs no `;`, and the first error ends the program.
"""

import contextlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final

from magnetar.base.errors import ConfigError, MagnetarError
from magnetar.pipelines.sql.statements import is_blank, split

PROMPT: Final = "magnetar> "
CONTINUED: Final = "     ...> "
HISTORY_LINES_MAX: Final = 1_000
STATEMENT_CHARACTERS_MAX: Final = 1 << 20
_NOTICED_WITHIN_S: Final = 0.2

HELP: Final = """\
select ... ;              any query of Spark SQL; every topic is a table:
                          topic, namespace.topic, tenant.namespace.topic, or the full name in backticks
show tables [in ns];      the topics            show schemas;   the namespaces
describe topic;           its columns           explain ...;    what Spark would do
exit                      leave (also Ctrl-D); Ctrl-C cancels a running query
"""

_LEAVE: Final = frozenset({"exit", "quit", "\\q"})
_KEYWORDS: Final = tuple(
    """
    and as asc between by case cast count cross desc describe distinct else end exists explain from full group having
    in inner interval is join lateral left like limit not null on or order outer over partition right schemas select
    show sum tables then timestamp true union using values when where window with
    """.split()  # noqa: SIM905 - fifty strings in quotes are harder to read
)


def converse(
    run: Callable[[str], None], complain: Callable[[Exception], None], words: Callable[[], Iterable[str]]
) -> None:
    """Read statements at a terminal and pass each to `run`, until the user ends it; Tab completes `words`."""
    with _line_editing(words):
        text = ""
        while True:
            try:
                line = _ask(CONTINUED if text else PROMPT)
            except EOFError:
                sys.stderr.write("\n")
                return
            except KeyboardInterrupt:
                sys.stderr.write("\n")
                text = ""
                continue
            if not text:
                word = line.strip().rstrip(";").casefold()
                if word in _LEAVE:
                    return
                if word in ("help", "?", "\\?"):
                    sys.stderr.write(HELP)
                    continue
            text = f"{text}{line}\n"
            parts = split(text)
            text = "" if parts.rest_is_blank else parts.rest
            if len(text) > STATEMENT_CHARACTERS_MAX:
                complain(ConfigError("a statement of more than a million characters: is a quote not closed?"))
                text = ""
            for statement in parts.statements:
                try:
                    run(statement)
                except MagnetarError as error:
                    complain(error)
                    break


def read_all(source: IO[str], run: Callable[[str], None]) -> None:
    """Run every statement of `source`; an exception of one ends it."""
    text = ""
    for line in source:
        text += line
        if ";" not in line:
            continue
        parts = split(text)
        text = parts.rest
        for statement in parts.statements:
            run(statement)
    if not is_blank(text):
        run(text.strip())


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C end a read, whenever the user presses it.

    Python only notes a signal; the main thread acts on the note when a signal interrupts its system call.  A Ctrl-C
    that comes after `input` has shown the prompt and before `input` begins to wait interrupts nothing.  Without a timer
    the prompt would not react until the user presses another key.
    """
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _NOTICED_WITHIN_S, _NOTICED_WITHIN_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@_interruptible()
def _ask(prompt: str) -> str:
    if sys.stdout.isatty():
        return input(prompt)
    # `input` would write the prompt between the data.
    sys.stderr.write(prompt)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


@contextlib.contextmanager
def _line_editing(words: Callable[[], Iterable[str]]) -> Iterator[None]:
    try:
        import readline
    except ImportError:  # a Python without readline
        yield
        return
    history = history_file()
    with contextlib.suppress(OSError):
        readline.read_history_file(history)
    readline.set_history_length(HISTORY_LINES_MAX)
    readline.set_completer_delims(" \t\n,()=<>;")
    found: list[str] = []

    def complete(text: str, state: int) -> str | None:
        if state == 0:
            found[:] = completions(text, words())
        return found[state] if state < len(found) else None

    readline.set_completer(complete)
    readline.parse_and_bind("tab: complete")
    try:
        yield
    finally:
        readline.set_completer(None)
        with contextlib.suppress(OSError):  # no history if the home is not writable
            history.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(history)
            history.chmod(0o600)


def completions(text: str, topics: Iterable[str]) -> list[str]:
    """Completions of `text`, the word before the cursor: first topics, then words of SQL."""
    wanted = text.casefold().lstrip("`")
    names = sorted(
        {name for name in topics if re.sub("`", "", name).casefold().startswith(wanted.replace("`", ""))}
    )
    return names + [word for word in _KEYWORDS if word.startswith(text.casefold()) and word not in names]


def history_file() -> Path:
    """The file with the lines of earlier prompts, in the user's state directory (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "magnetar" / "sql_history"
