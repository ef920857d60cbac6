"""What `magnetar namespaces` and `persistent` make of their words, before any server is asked."""

import io
from pathlib import Path

import pytest

from magnetar.cli.main import run

NOWHERE = ("--url", "http://127.0.0.1:1")
ADD = ("namespaces", "add-repl-config", "public/default", "--type", "Kafka", "--region-name", "r")
MAPPING = ("--topicNameMapping", '{"t": "u"}')


@pytest.mark.parametrize("noun", ["namespaces", "persistent"])
def test_help_says_what_each_verb_is_for(noun: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([noun, "--help"]) == 0
    verbs = [line.split() for line in capsys.readouterr().out.partition("Commands:")[2].splitlines() if line]
    assert verbs
    for verb, *words in verbs:
        assert words, verb
        assert run([noun, verb, "--help"]) == 0
        assert "--url" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((*ADD, "--topicNameMapping", "{secret"), "--topicNameMapping is not JSON"),
        ((*ADD, "--topicNameMapping", "[]"), "--topicNameMapping must be a JSON object"),
        ((*ADD, *MAPPING, "--auth-param", "{secret"), "--auth-param is not JSON"),
        ((*ADD, *MAPPING, "--auth-param", "-", "--replication-properties", "-"), "only one of the options"),
        ((*ADD, *MAPPING, "--auth-param", "@/no/such/file"), "/no/such/file: No such file"),
        (("namespaces", "list-repl-config", "public"), "'public' is not tenant/namespace"),
        (("namespaces", "list-repl-config", "public/a b"), "namespace 'a b' may have only"),
        (("persistent", "replicator-stats", "t"), "'t' is not tenant/namespace/topic"),
        (("persistent", "update-replicator", "-r", "Kafka", "-a", "Explode", "public/default/t"), "Explode"),
        (("persistent", "deregister-replicator", "-r", "..", "public/default/t"), "cannot be said over HTTP"),
    ],
)
def test_words_that_say_nothing_are_one_sentence(
    arguments: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, *NOWHERE]) in (1, 2)
    said = capsys.readouterr().err
    assert why in said
    assert "secret" not in said
    assert len(said.splitlines()) == 1


def test_what_is_longer_than_anything_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " " * ((1 << 20) + 1)
    (tmp_path / "long").write_text(long)
    monkeypatch.setattr("sys.stdin", io.StringIO(long))
    for given in ("-", f"@{tmp_path / 'long'}"):
        assert run([*ADD, *MAPPING, "--auth-param", given, *NOWHERE]) == 2
        assert "--auth-param is longer than" in capsys.readouterr().err
