"""The ways in which a setting names a key."""

import base64
import os
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.key_source import KEY_BYTES_MAX, key_file, read_key

KEY = bytes(range(32))
TEXT = base64.b64encode(KEY).decode()


def test_each_way_leads_to_the_key(tmp_path: Path) -> None:
    file = tmp_path / "a key.bin"
    file.write_bytes(KEY)
    quoted = str(file).replace(" ", "%20")
    for given in (
        str(file),
        f"file://{quoted}",
        f"file:{file}",
        f"file://localhost{quoted}",
        f"data:;base64,{TEXT}",
        f"data:application/octet-stream;base64,{TEXT}",
        f"data:text/plain;charset=utf-8;base64,{TEXT}",
        TEXT,
        "env:KEY",
        "env:FILE",
    ):
        assert read_key("tokenSecretKey", given, {"KEY": TEXT, "FILE": f"file:{file}"}) == KEY, given
    assert read_key("tokenSecretKey", "data:,a%20key", {}) == b"a key"


def test_a_key_in_a_file_says_which_one(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY)
    for given in (str(file), f"file://{file}", "env:FILE"):
        assert key_file("tokenSecretKey", given, {"FILE": str(file)}) == file, given
    assert key_file("tokenSecretKey", "file:///none", {}) == Path("/none")
    for given in (f"data:;base64,{TEXT}", TEXT, "env:KEY"):
        assert key_file("tokenSecretKey", given, {"KEY": TEXT}) is None, given


def test_file_is_the_key_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(TEXT.encode() + b"\n")
    assert read_key("tokenSecretKey", str(file), {}) == TEXT.encode() + b"\n"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("file:///there/is/none", "cannot be read: No such file"),
        ("file:///dev/null", "is not a file"),
        ("file:///", "Is a directory"),
        ("file:///a%00b", "is not the name of a file"),
        ("file:", "file:///path"),
        ("env:NONE", "the environment has no 'NONE'"),
        ("env:EMPTY", "the environment has no 'EMPTY'"),
        ("env:AGAIN", "neither a file"),
        ("data:;base64", "data:;base64,"),
        ("data:;base64,====", "nor a key in base64"),
        ("a-secret-that-is-no-base64!", "nor a key in base64"),
        ("not/there\0", "nor a key in base64"),
        ("x" * 5000 + "!", "nor a key in base64"),
        ("", "Is a directory"),
    ],
)
def test_what_is_no_key_is_one_sentence_without_it(given: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        read_key("tokenSecretKey", given, {"EMPTY": "", "AGAIN": "env:EMPTY"})
    assert str(caught.value).startswith("tokenSecretKey")
    assert "a-secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_empty_and_huge_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.touch()
    with pytest.raises(ConfigError, match="empty"):
        read_key("tokenSecretKey", str(file), {})
    file.write_bytes(bytes(KEY_BYTES_MAX + 1))
    with pytest.raises(ConfigError, match="which is too many"):
        read_key("tokenSecretKey", str(file), {})


def test_pipe_does_not_hold_up_the_start(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a file"):
        read_key("tokenSecretKey", str(tmp_path / "pipe"), {})
