"""Kafka's JAAS lines; what is wrong with one is said without a word of it."""

import pytest

from magnetar.base.jaas import parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_kafkas_own_example() -> None:
    entry = parse_jaas(
        f'{MODULE} required username="admin" password="s" user_admin="s" user_alice="a-secret";'
    )
    assert entry.module == MODULE
    assert entry.options == {
        "username": "admin",
        "password": "s",
        "user_admin": "s",
        "user_alice": "a-secret",
    }
    assert "secret" not in repr(entry)


def test_quotes_escapes_comments_and_lines() -> None:
    text = (
        MODULE
        + ' REQUIRED // the users\n /* of all */ "user_a@b"=\'x "y"\' user_c="q\\"\\\\;=" user_d=bare_1.$-;\n'
    )
    assert parse_jaas(text).options == {"user_a@b": 'x "y"', "user_c": 'q"\\;=', "user_d": "bare_1.$-"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        MODULE,
        f"{MODULE} required user_a=hunter2",
        f"{MODULE} sometimes user_a=hunter2;",
        f"{MODULE} required user_a hunter2;",
        f"{MODULE} required user_a=;",
        f"{MODULE} required =hunter2 user_a;",
        f'{MODULE} required user_a="hunter2;',
        f"{MODULE} required user_a=hunter2!;",
        f"{MODULE} required user_a=hunter2 user_a=hunter2;",
        f"{MODULE} required user_a=hunter2; {MODULE} required user_b=hunter2;",
        f"/* {MODULE} required user_a=hunter2;",
    ],
)
def test_what_is_none_is_refused_without_being_shown(text: str) -> None:
    with pytest.raises(ValueError) as said:  # noqa: PT011  the text is what is looked at
        parse_jaas(text)
    assert "hunter2" not in str(said.value)
