"""Contexts: what their file says, who may read it, and which one a name stands for."""

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.contexts import (
    Context,
    Contexts,
    contexts_text,
    default_file,
    find_context,
    read_contexts,
    write_contexts,
)
from magnetar.base.errors import ConfigError

HERE = Context("https://localhost:8443", "/ca.pem", "/token")
THERE = Context("http://there:8080", token_command='pass show "magnetar"')


def environment(folder: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(folder)}


def test_what_is_written_is_read_again_by_its_account_alone(tmp_path: Path) -> None:
    file = tmp_path / "magnetar" / "contexts.toml"
    contexts = Contexts({"here": HERE, "there.1": THERE}, "here")
    write_contexts(file, contexts)
    assert read_contexts(file) == contexts
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    write_contexts(file, Contexts())
    assert read_contexts(file) == Contexts()


@given(st.text(min_size=1).filter(lambda text: "\0" not in text and not text.startswith("~")))
def test_any_text_comes_back(text: str) -> None:
    import tomllib

    try:
        text.encode()
    except UnicodeEncodeError:
        return
    document = tomllib.loads(contexts_text(Contexts({"a": Context("http://a", token_command=text)}, "a")))
    assert document["contexts"]["a"]["token-command"] == text


def test_files_are_those_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[contexts.a]\nurl="https://a"\nca="ca.pem"\ntoken-file="~/token"\n')
    found = read_contexts(file).of("a", file)
    assert found.ca == str(tmp_path / "ca.pem")
    assert found.token_file == str(Path("~/token").expanduser())


def test_a_name_is_one_of_the_users_or_a_file(tmp_path: Path) -> None:
    mine = environment(tmp_path)
    assert find_context("", mine) is None
    write_contexts(default_file(mine), Contexts({"here": HERE, "there": THERE}))
    assert find_context("", mine) is None
    assert find_context("there", mine) == THERE
    write_contexts(default_file(mine), Contexts({"here": HERE, "there": THERE}, "here"))
    assert find_context("", mine) == HERE
    file = tmp_path / "other.toml"
    write_contexts(file, Contexts({"x": THERE}, "x"))
    assert find_context(str(file), mine) == THERE


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere", "there is no context 'nowhere' in .*: there is here"),
        ("/no/such.toml", "there is no file of contexts"),
    ],
)
def test_a_name_that_stands_for_nothing_is_one_sentence(tmp_path: Path, name: str, says: str) -> None:
    write_contexts(default_file(environment(tmp_path)), Contexts({"here": HERE}))
    with pytest.raises(ConfigError, match=says):
        find_context(name, environment(tmp_path))


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "other = 1",
        "contexts = 1",
        "current = 1",
        '[contexts.a]\nurl = "ftp://a"',
        '[contexts.a]\nurl = "https://"',
        '[contexts.a]\nurl = "https://a:99999"',
        '[contexts.a]\nurl = "https://a?b=c"',
        '[contexts.a]\nurl = "https://a#@b"',
        f"a = {'[' * 100_000}",
        "[contexts.a]\nurl = 1",
        '[contexts.a]\nurl = "https://a"\ntoken = "secret"',
        '[contexts.a]\nurl = "https://a"\ntoken-file = "a"\ntoken-command = "b"',
        '[contexts.a]\nurl = "https://a"\nkafka = "a"',
        '[contexts.a]\nurl = "https://a"\nkafka = "secret@a:9092"',
        "x" * (2 << 20),
    ],
)
def test_what_is_no_file_of_contexts_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "contexts.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_contexts(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x.toml", "-a", "a" * 200])
def test_a_name_that_cannot_be_told_from_a_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no name of a context"):
        write_contexts(tmp_path / "contexts.toml", Contexts({name: HERE}))


def test_the_configuration_folder_is_that_of_the_desktop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    assert default_file({}) == Path("/home/alice/.config/magnetar/contexts.toml")
    assert default_file({"XDG_CONFIG_HOME": "relative"}) == default_file({})
    assert default_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/magnetar/contexts.toml")


@pytest.mark.parametrize(
    "url", ["https://alice:hidden@host", "ftp://hidden@host", "https://alice:hidden@host:99999"]
)
def test_a_password_in_an_address_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Context(url)
    assert "hidden" not in str(refused.value)
