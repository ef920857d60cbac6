"""Names of files, as users write them."""

from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.paths import absolute_path
from magnetar.base.settings import load_settings


def test_a_path_begins_in_the_folder_or_in_a_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.chdir(tmp_path)
    assert absolute_path("x", "~/data") == Path("/home/alice/data")
    assert absolute_path("x", Path("data")) == tmp_path / "data"
    assert absolute_path("x", "/data") == Path("/data")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("~no-such-user/x", r"^data\.dir '~no-such-user/x': there is no such user$"),
        ("a\0b", r"^data\.dir 'a\\x00b' is not the name of a file$"),
    ],
)
def test_what_names_nothing_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        load_settings(assignments=[f"data.dir={name}"])
