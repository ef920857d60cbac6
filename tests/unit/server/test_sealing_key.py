"""Where the key comes from that seals what is secret: a file of the server's own, or what the operator says."""

import base64
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings import load_settings
from magnetar.base.settings_sealing import SealingSettings
from magnetar.server import sealing_key as module
from magnetar.server.sealing_key import sealing_keys

KEY = b"0123456789abcdef0123456789abcdef"


def test_without_a_setting_it_is_a_file_of_the_servers_own(tmp_path: Path) -> None:
    key, old = sealing_keys(SealingSettings(), tmp_path, {})
    file = tmp_path / "secrets.key"
    assert (len(key), old) == (64, b"")
    assert file.read_bytes().strip() == key
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o644)
    assert sealing_keys(SealingSettings(), tmp_path, {}) == (key, b"")
    assert file.stat().st_mode & 0o777 == 0o600


def test_it_comes_from_a_file_the_environment_a_command_or_the_setting(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_bytes(KEY + b"\n")
    coded = base64.b64encode(KEY).decode()
    for given in (
        file.as_uri(), str(file), "env:KEY", f"data:;base64,{coded}", f"command:cat '{file}'; echo"
    ):  # fmt: skip
        assert sealing_keys(SealingSettings(given), tmp_path, {"KEY": coded}) == (KEY, b"")
        assert sealing_keys(SealingSettings("env:KEY", given), tmp_path, {"KEY": coded}) == (KEY, KEY)
    assert [one.name for one in tmp_path.iterdir()] == ["key"], "no other one is made"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("data:,hunter2hunter2", "has 32 bytes at least, and this one has 14"),
        ("file:///nowhere/hunter2", "cannot be read"),
        ("env:NOTHING", "the environment has no 'NOTHING'"),
        ("command:echo hunter2; exit 3", "failed with exit code 3"),
        ("command:true", "this one has 0"),
        ("command:head -c 70000 /dev/zero", "printed more than 65536 bytes"),
        ("command:sleep 60", "has not ended after 0.2 s"),
    ],
)
@pytest.mark.parametrize("is_old", [False, True])
def test_what_is_no_key_ends_the_start_in_one_sentence(
    tmp_path: Path, given: str, reason: str, is_old: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMMAND_S_MAX", 0.2)
    settings = SealingSettings("", given) if is_old else SealingSettings(given)
    with pytest.raises(ConfigError, match=reason) as caught:
        sealing_keys(settings, tmp_path, {})
    assert str(caught.value).startswith("secrets.old.key:" if is_old else "secrets.key:")
    assert "echo hunter2" not in str(caught.value)
    assert given not in repr(settings)


def test_settings_name_them_and_show_them_to_no_client() -> None:
    settings = load_settings(assignments=["secrets.key=env:A", "secrets.old.key=env:B"])
    assert settings.sealing == SealingSettings("env:A", "env:B")
    assert "env:A" not in repr(settings.given)
