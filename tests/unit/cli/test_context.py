"""`magnetar context`, and which server the other commands take."""

import json
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.cli.main import run
from magnetar.cli.reaching import DEFAULT_URL, reached
from magnetar.client.login import Server

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("MAGNETAR_CONTEXT", "MAGNETAR_URL", "MAGNETAR_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def add(name: str, *more: str) -> int:
    return run(["context", "add", name, *(more or ("--url", f"https://{name}:8443"))])


def listed(capsys: Captured) -> list[tuple[str, bool]]:
    capsys.readouterr()
    assert run(["context", "list", "-o", "json"]) == 0
    return [(row["name"], row["current"]) for row in json.loads(capsys.readouterr().out)]


def test_the_first_is_used_until_another_one_is(capsys: Captured) -> None:
    assert listed(capsys) == []
    assert add("a") == add("b") == 0
    assert listed(capsys) == [("a", True), ("b", False)]
    assert run(["context", "use", "b"]) == 0
    assert run(["context", "list"]) == 0
    assert capsys.readouterr().out == "  a  https://a:8443\n* b  https://b:8443\n"
    assert run(["context", "remove", "b"]) == 0
    assert listed(capsys) == [("a", False)]


def test_files_are_named_from_anywhere_and_not_copied(home: Path, capsys: Captured) -> None:
    (home / "token").write_text("secret")
    (home / "ca.pem").write_text("x")
    assert add("a", "--url", "https://a", "--token-file", "token", "--ca", "ca.pem") == 0
    capsys.readouterr()
    assert run(["context", "list", "-o", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["token_file"], row["ca"]) == (str(home / "token"), str(home / "ca.pem"))
    assert "secret" not in (home / "magnetar" / "contexts.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["add", "x"], "say --url, or --from a file"),
        (["add", "x", "--url", "nonsense"], "no address such as"),
        (["add", "x", "--url", "https://x", "--from", "f.toml"], "leave the other options out"),
        (["add", "x", "--from", "f.toml"], "has no current context"),
        (["add", "x", "--url", "https://x", "--token-file", "none"], "there is no file"),
        (["add", "x", "--url", "https://x", "--ca", "none"], "there is no file"),
        (["add", "x/y", "--url", "https://x"], "no name of a context"),
        (["add", "a", "--url", "https://x"], "there is a context a already"),
        (["use", "x"], "there is no context 'x'"),
        (["remove", "x"], "there is no context 'x'"),
    ],
)
def test_what_cannot_be_done_is_one_sentence_and_changes_nothing(
    home: Path, capsys: Captured, arguments: list[str], says: str
) -> None:
    assert add("a") == 0
    before = (home / "magnetar" / "contexts.toml").read_bytes()
    capsys.readouterr()
    assert run(["context", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert says in err
    assert (home / "magnetar" / "contexts.toml").read_bytes() == before


def test_a_token_has_one_source(home: Path, capsys: Captured) -> None:
    (home / "token").write_text("secret")
    assert add("a", "--url", "https://a", "--token-file", "token", "--token-command", "true") == 2
    assert "keep one of them" in capsys.readouterr().err


def test_what_is_said_goes_over_the_environment_and_that_over_the_current_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert reached("", "") == Server(DEFAULT_URL)
    assert add("a") == add("b") == 0
    assert reached("", "") == Server("https://a:8443", "a")
    monkeypatch.setenv("MAGNETAR_CONTEXT", "b")
    assert reached("", "") == Server("https://b:8443", "b")
    assert reached("http://c", "") == Server("http://c")
    assert reached("", "a") == Server("https://a:8443", "a")
    monkeypatch.delenv("MAGNETAR_CONTEXT")
    monkeypatch.setenv("MAGNETAR_URL", "http://d")
    assert reached("", "") == Server("http://d")


def test_an_address_and_a_context_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    assert add("a") == 0
    with pytest.raises(ConfigError, match="both say where the server is"):
        reached("http://b", "a")
    monkeypatch.setenv("MAGNETAR_URL", "http://b")
    monkeypatch.setenv("MAGNETAR_CONTEXT", "a")
    with pytest.raises(ConfigError, match="both say where the server is"):
        reached("", "")


@pytest.mark.parametrize("command", ["pipelines list", "pipelines status x", "sql", "worker"])
def test_every_command_that_talks_to_a_server_takes_them(command: str, capsys: Captured) -> None:
    assert run([*command.split(), "--context", "nowhere"]) == 2
    assert "there is no context 'nowhere'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "is_told"),
    [("http://kafka.example.com", True), ("HTTP://192.0.2.1:80", True), ("https://a", False)]
    + [(f"http://{here}:8080", False) for here in ("localhost", "127.0.0.1", "[::1]")],
)
def test_a_token_that_others_could_read_on_its_way_is_told(url: str, is_told: bool, capsys: Captured) -> None:
    assert add("a", "--url", url, "--token-command", "echo secret") == 0
    assert ("without TLS" in capsys.readouterr().err) == is_told
