"""Statements from a person or a pipe."""

import io
from collections.abc import Callable

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.sql import prompt


def conversation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, lines: list[str | type[BaseException]]
) -> Callable[[str], str]:
    """Lines that a person types; an exception is a key such as Ctrl-C."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    left = iter(lines)

    def ask(shown: str) -> str:
        line = next(left, EOFError)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr(prompt, "_ask", ask)
    return ask


def talk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, lines: list[str | type[BaseException]]
) -> tuple[list[str], list[str]]:
    ran: list[str] = []
    complaints: list[str] = []

    def run(statement: str) -> None:
        ran.append(statement)
        if "bad" in statement:
            raise ConfigError(f"{statement} is bad")

    conversation(monkeypatch, tmp_path, lines)
    prompt.converse(run, lambda error: complaints.append(str(error)), list)
    return ran, complaints


def test_a_statement_takes_as_many_lines_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    ran, _ = talk(monkeypatch, tmp_path, ["select 1,", "  ';' -- x;", "  ; select 2", ";"])
    assert ran == ["select 1,\n  ';' -- x;", "select 2"]


def test_ctrl_c_forgets_what_was_typed_and_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    ran, _ = talk(monkeypatch, tmp_path, ["select 1,", KeyboardInterrupt, "select 2;"])
    assert ran == ["select 2"]


def test_a_failed_statement_is_told_and_the_rest_of_its_line_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    ran, complaints = talk(monkeypatch, tmp_path, ["bad; select 1;", "select 2;"])
    assert ran == ["bad", "select 2"]
    assert complaints == ["bad is bad"]


@pytest.mark.parametrize("word", ["exit", "quit;", "\\q", " EXIT "])
def test_words_that_leave(monkeypatch: pytest.MonkeyPatch, tmp_path: object, word: str) -> None:
    ran, _ = talk(monkeypatch, tmp_path, ["select 1;", word, "select 2;"])
    assert ran == ["select 1"]


def test_help_is_talk(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, _ = talk(monkeypatch, tmp_path, ["help"])
    assert ran == []
    out, err = capsys.readouterr()
    assert out == ""
    assert "show tables" in err


def test_a_pipe_needs_no_last_semicolon() -> None:
    ran: list[str] = []
    prompt.read_all(io.StringIO("select 1; select\n 2;\n-- done\nselect 3"), ran.append)
    assert ran == ["select 1", "select\n 2", "-- done\nselect 3"]


def test_the_first_failure_ends_a_pipe() -> None:
    ran: list[str] = []

    def run(statement: str) -> None:
        ran.append(statement)
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        prompt.read_all(io.StringIO("select 1; select 2;"), run)
    assert ran == ["select 1"]


def test_tab_completes_topics_then_words() -> None:
    topics = ["flights", "`from-here`", "ops.flights"]
    assert prompt.completions("f", topics) == ["`from-here`", "flights", "from", "full"]
    assert prompt.completions("`from", topics) == ["`from-here`"]
    assert prompt.completions("OPS", topics) == ["ops.flights"]
    assert prompt.completions("sel", topics) == ["select"]
    assert prompt.completions("zzz", topics) == []
