"""The audit log's file: in order, moved away, full, and gone."""

import asyncio
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from magnetar.base.clock import SystemClock
from magnetar.base.errors import ConfigError
from magnetar.server import audit_log
from magnetar.server.audit_log import CHANGES_BYTES_MAX, QUEUE_BYTES_MAX, AuditLog


@contextmanager
def opened(path: Path) -> Iterator[AuditLog]:
    log = AuditLog.open(str(path), Path("/nowhere"), SystemClock())
    try:
        yield log
    finally:
        log.close()


def put(log: AuditLog, *lines: bytes) -> None:
    for line in lines:
        assert log.put(line, is_change=True)
    asyncio.run(log.handed_over())


def numbered(count: int) -> list[bytes]:
    return [b"%d\n" % number for number in range(count)]


def test_lines_are_in_the_file_in_their_order_once_they_are_handed_over(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    with opened(path) as log:
        put(log, *numbered(20_000))
        assert path.read_bytes() == b"".join(numbered(20_000))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert log.problem is None


def test_a_path_begins_in_the_data_folder(tmp_path: Path) -> None:
    log = AuditLog.open("audit.log", tmp_path, SystemClock())
    put(log, b"1\n")
    log.close()
    assert (tmp_path / "audit.log").read_bytes() == b"1\n"


def test_a_file_that_is_there_is_gone_on_with_behind_a_line_that_a_crash_has_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"time":1}\n{"ti')
    path.chmod(0o640)
    with opened(path) as log:
        put(log, b"2\n")
    with opened(path) as log:
        put(log, b"3\n")
    assert path.read_bytes() == b'{"time":1}\n{"ti\n2\n3\n'
    assert stat.S_IMODE(path.stat().st_mode) == 0o640, "who rotates it says who may read it"


@pytest.mark.parametrize("leaves_one", [True, False], ids=["moved and made anew", "moved"])
def test_a_file_that_was_moved_away_is_made_anew(tmp_path: Path, leaves_one: bool) -> None:
    path, moved = tmp_path / "audit.log", tmp_path / "audit.log.1"
    with opened(path) as log:
        put(log, b"1\n")
        path.rename(moved)
        if leaves_one:
            path.touch()
        put(log, b"2\n")
        assert (moved.read_bytes(), path.read_bytes()) == (b"1\n", b"2\n")
        path.write_bytes(b"")  # as logrotate's copytruncate does
        put(log, b"3\n")
        assert path.read_bytes() == b"3\n"


@pytest.mark.parametrize("name", ["metadata.sqlite", "metadata.sqlite-wal", "lock"])
def test_files_of_the_servers_own_are_refused_also_before_they_are_there(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="of the server's own"):
        AuditLog.open(name, tmp_path, SystemClock())
    assert not (tmp_path / name).exists()


def test_a_file_of_another_kind_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("what I have seen")
    with pytest.raises(ConfigError, match="is no audit log"):
        AuditLog.open(str(other), tmp_path, SystemClock())
    assert other.read_text() == "what I have seen"


@pytest.mark.parametrize("path", ["missing/audit.log", ".", "~no-such-user/audit.log", "a\0b"])
def test_a_start_without_a_file_to_write_is_refused_in_one_sentence(tmp_path: Path, path: str) -> None:
    with pytest.raises(
        ConfigError, match=r"^audit\.log: .* cannot be written \(.*\): name a file in a folder"
    ):
        AuditLog.open(path, tmp_path, SystemClock())


def test_a_full_disk_keeps_no_caller_and_loses_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "RETRY_S", 0.01)
    path, write = tmp_path / "audit.log", os.write
    room = 7

    def limited(descriptor: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(28, "No space left on device")
        count = write(descriptor, data[:room])
        room -= count
        return count

    monkeypatch.setattr(os, "write", limited)
    with opened(path) as log:
        put(log, b"first\n", b"second\n", b"third\n")
        assert log.problem is not None
        assert "No space left on device" in log.problem
        assert path.read_bytes() == b"first\ns"
        room = 1 << 20
        monkeypatch.setattr(audit_log, "RETRY_S", 0.0)
        put(log, b"fourth\n")
        while log.problem is not None:
            asyncio.run(log.handed_over())
    assert path.read_bytes() == b"first\nsecond\nthird\nfourth\n"


def test_a_line_that_was_cut_is_whole_in_the_file_that_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "RETRY_S", 0.01)
    path, moved, write = tmp_path / "audit.log", tmp_path / "moved", os.write
    calls: list[int] = []

    def torn(descriptor: int, data: bytes) -> int:
        calls.append(descriptor)
        if len(calls) == 1:
            return write(descriptor, data[:8])
        if len(calls) == 2:
            path.rename(moved)
            raise OSError(5, "Input/output error")
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", torn)
    with opened(path) as log:
        put(log, b"first\n", b"second\n")
        while log.problem is not None:
            asyncio.run(log.handed_over())
    assert moved.read_bytes().startswith(b"first\n")
    assert path.read_bytes().endswith(b"second\n")
    assert {*path.read_bytes().splitlines()} <= {b"first", b"second"}


def test_what_waits_is_bounded_and_changes_have_more_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    path = tmp_path / "audit.log"
    with opened(path) as log:
        monkeypatch.setattr(os, "write", full)
        line = b"x" * 8191 + b"\n"
        refusals = sum(log.put(line, is_change=False) for _ in range(3000))
        changes = sum(log.put(line, is_change=True) for _ in range(3000))
    assert refusals == QUEUE_BYTES_MAX // len(line)
    assert refusals + changes == CHANGES_BYTES_MAX // len(line)


def test_a_reader_that_takes_nothing_keeps_callers_for_a_moment_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(audit_log, "PATIENCE_S", 0.02)
    monkeypatch.setattr(audit_log, "CLOSE_S_MAX", 0.0)
    reading, writing = os.pipe()
    log = AuditLog(None, writing, SystemClock())
    line = b"x" * 8191 + b"\n"
    try:
        for _ in range(20):  # more than a pipe holds
            log.put(line, is_change=True)
        asyncio.run(log.handed_over())
        assert (
            log.problem == "The audit log has not been written for a second: see to its disk, or its reader."
        )
        asyncio.run(log.handed_over())
        taken = 0
        while taken < 20 * len(line):
            taken += len(os.read(reading, 1 << 20))
        log._thread.join(0.0)
        while log.problem is not None:
            asyncio.run(log.handed_over())
    finally:
        log.close()
        log._thread.join(5)
        os.close(reading)
        os.close(writing)
