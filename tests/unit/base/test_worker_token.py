from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.worker_token import ensure_token, read_token


def test_a_token_is_made_once_and_only_its_owner_can_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "chmod", None)  # from its first moment on, not afterwards
    path = tmp_path / "worker-token"
    token = ensure_token(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(token) == 64
    assert ensure_token(path) == read_token(path) == token
    assert ensure_token(tmp_path / "other") != token
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other", "worker-token"]


def test_a_token_that_others_could_read_is_kept_from_them(tmp_path: Path) -> None:
    path = tmp_path / "worker-token"
    token = ensure_token(path)
    path.chmod(0o644)
    assert ensure_token(path) == token
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [None, b"", b"short\n", b"\xff" * 64, b"a" * 65])
def test_what_is_no_token_is_refused_in_one_sentence(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "worker-token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="--token-file"):
        read_token(path)
