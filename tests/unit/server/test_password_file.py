"""A file of passwords that changes while the server runs."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Credentials
from magnetar.server.password_file import PasswordFile

# The password of all of them is `secret`.
ALICE = "alice:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n"
BOB = "bob:ESbinRWkipLcY\n"


def logs_in(one: PasswordFile, user: str) -> bool:
    try:
        return one.passwords.identify(Credentials("basic", f"{user}:secret".encode())).role == user
    except AuthenticationFailed:
        return False


def looked(one: PasswordFile, times: int, between: Callable[[], object] = lambda: None) -> None:
    async def scenario() -> None:
        for _ in range(times):
            await one.refresh()
            between()

    asyncio.run(scenario())


@pytest.mark.parametrize("given", ["{}", "file://{}", "env:FILE"])
def test_a_change_holds_for_the_next_login(
    tmp_path: Path, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "htpasswd"
    file.write_text(ALICE)
    one = PasswordFile(given.format(file), {"FILE": str(file)})
    with caplog.at_level(logging.INFO):
        looked(one, 3)
        assert (logs_in(one, "alice"), logs_in(one, "bob")) == (True, False)
        file.write_text(BOB)
        looked(one, 1)
        assert logs_in(one, "alice"), "it has not stood yet"
        looked(one, 3)
        assert (logs_in(one, "alice"), logs_in(one, "bob")) == (False, True)
    assert [record.levelname for record in caplog.records] == ["INFO"]


@pytest.mark.parametrize("broken", ["alice:hunter2\n", "", None])
def test_a_file_that_cannot_be_used_is_one_line_and_what_was_there_stays(
    tmp_path: Path, broken: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "htpasswd"
    file.write_text(ALICE)
    one = PasswordFile(str(file), {})
    if broken is None:
        os.unlink(file)
    else:
        file.write_text(broken)
    with caplog.at_level(logging.INFO):
        looked(one, 5)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert record.getMessage().startswith("basicAuthConf")
    assert "the passwords that were there before stay" in record.getMessage()
    assert "hunter2" not in record.getMessage()
    assert logs_in(one, "alice")
    file.write_text(BOB)
    looked(one, 3)
    assert (logs_in(one, "alice"), logs_in(one, "bob")) == (False, True)


def test_a_file_that_is_being_written_is_not_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "htpasswd"
    file.write_text(ALICE)
    one = PasswordFile(str(file), {})
    parts = iter([BOB[:5], BOB[:9], BOB])

    def write_on() -> None:
        part = next(parts, "")
        if part:
            file.write_text(part)

    with caplog.at_level(logging.WARNING):
        looked(one, 6, write_on)
    assert caplog.records == []
    assert logs_in(one, "bob")


def test_passwords_in_the_setting_itself_stay_as_they_are() -> None:
    one = PasswordFile(f"data:,{ALICE}", {})
    looked(one, 3)
    assert logs_in(one, "alice")


def test_a_file_that_cannot_be_used_at_the_start_ends_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^basicAuthConf: .* cannot be read: No such file"):
        PasswordFile(f"file://{tmp_path}/none", {})
    with pytest.raises(ConfigError, match="is not the name of a file"):
        PasswordFile("file:///a%00b", {})
