"""Where statements end, by Spark's lexical rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.pipelines.sql.statements import is_blank, split

WHOLE = [
    "select 1",
    "select ';'",
    'select ";"',
    "select `;` from t",
    "select `a``;` from t",
    "select 'it''s; fine'",
    r"select 'a\';b'",
    r"select r'\', 2",
    r'select R"\;"',
    "select 1 -- one; two\n, 2",
    "select 1 -- goes on \\\n; still\n, 2",
    "select /* ; */ 1",
    "select /* /* ; */ ; */ 1",
    "select /*+ broadcast(t) */ 1 from t",
    "select 4 / 2 - 1",
    "select char'x;'",
]


@pytest.mark.parametrize("text", WHOLE)
def test_a_semicolon_that_is_quoted_or_commented_ends_nothing(text: str) -> None:
    parts = split(f"{text};{text} ;")
    assert parts.statements == [text, text]
    assert parts.rest_is_blank


@pytest.mark.parametrize(
    "text",
    ["select 1", "select 'a;", "select `a;b", "select /* ; */ /* ;", "select 'a\\';", 'select "a; b', "-- a"],
)
def test_what_is_not_ended_is_left(text: str) -> None:
    parts = split(text)
    assert parts.statements == []
    assert parts.rest == text


@pytest.mark.parametrize("text", ["", "  \n", "-- a", "-- a\n", "/* a; */  -- b\n"])
def test_space_and_comments_are_no_statement(text: str) -> None:
    assert is_blank(text)
    assert split(f"{text}\n;").statements == []


def test_an_open_comment_is_not_blank() -> None:
    assert not is_blank("/* a")
    assert not is_blank("x")


def test_a_prefix_of_raw_strings_is_no_prefix_inside_a_word() -> None:
    assert split(r"select bar'\';x' ; select 2;").statements == [r"select bar'\';x'", "select 2"]


@given(st.text(alphabet="a;'\"`-/* \\\nrR", max_size=60), st.text(alphabet="a;'\"`-/* \\\nrR", max_size=60))
def test_text_that_comes_in_two_pieces_is_split_as_in_one(first: str, second: str) -> None:
    """As a prompt sees it: line by line, what is left is put before the next line."""
    whole = split(first + "\n" + second)
    begun = split(first + "\n")
    rest = split(begun.rest + second)
    assert begun.statements + rest.statements == whole.statements
    assert rest.rest == whole.rest
