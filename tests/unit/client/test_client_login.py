"""Where a client's token comes from, and when it is read again."""

from pathlib import Path

import pytest

from magnetar.base.contexts import Context, Contexts, write_contexts
from magnetar.base.errors import ConfigError
from magnetar.client import login as login_module
from magnetar.client.login import Login, Server


def test_a_token_comes_from_a_text_a_file_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    file.write_text("from-file\n")
    assert Login().token == ""
    assert Login(token="given").token == "given"
    assert Login(token=file.as_uri()).token == "from-file"
    assert Login(command=f"cat '{file}'").token == "from-file"


def test_it_is_read_once_until_it_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    login = Login(token=file.as_uri())
    assert login.token == "first"
    file.write_text("second")
    assert login.token == "first"
    assert login.has_another_token()
    assert login.token == "second"
    assert not login.has_another_token()


def test_a_file_is_looked_at_again_in_time_and_what_it_had_is_kept_while_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was replaced before its end was found only by a refusal."""
    file = tmp_path / "token"
    file.write_text("first")
    login = Login(token=file.as_uri())
    assert login.token == "first"
    monkeypatch.setattr(login_module, "LOOK_EVERY_S", -1.0)
    file.write_text("second")
    assert login.token == "second"
    file.unlink()
    assert login.token == "second"


@pytest.mark.parametrize(
    "command",
    ["echo secret >&2; exit 3", "true", "echo two words", "printf '\\303\\274'", "no-such-command-here"],
)
def test_a_command_that_gives_none_is_one_sentence_without_what_it_printed(command: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _ = Login(command=command).token
    assert "\n" not in str(caught.value)
    assert "the token's command" in str(caught.value)
    assert not {"secret", "two", "no-such"} & set(str(caught.value).split())


def test_certificates_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.write_text("nonsense")
    for file in (empty, tmp_path / "none.pem"):
        with pytest.raises(ConfigError, match=f"cannot be read from {file}"):
            Login(ca=str(file)).trusting()


def test_a_server_is_told_by_names_alone_and_read_where_it_is_needed(tmp_path: Path) -> None:
    token, file = tmp_path / "token", tmp_path / "c.toml"
    token.write_text("t")
    write_contexts(file, Contexts({"a": Context("https://a:1/", "/ca.pem", str(token))}, "a"))
    server = Server.of(str(file))
    assert server == ("https://a:1", str(file))
    assert (server.login().ca, server.login().token) == ("/ca.pem", "t")
    assert Server("http://b").login().token == ""
