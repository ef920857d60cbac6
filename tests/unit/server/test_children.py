"""What the server does alike for all processes that it starts."""

import asyncio
import os
from pathlib import Path

import pytest

from magnetar.server.children import cut_log, started


def test_a_log_keeps_its_end_and_goes_on_in_the_same_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab", buffering=0) as writer:
        for number in range(100):
            writer.write(b"line %02d\n" % number)
        cut_log(log, 800)
        assert log.stat().st_size == 800, "it is not longer than it may be"
        writer.write(b"one line more\n")
        cut_log(log, 800)
        writer.write(b"after the cut\n")
    assert log.read_bytes() == b"after the cut\n"
    kept = (tmp_path / "log.1").read_bytes()
    assert (len(kept), kept[-22:]) == (800, b"line 99\none line more\n")


def test_a_log_is_cut_though_its_end_cannot_be_kept(tmp_path: Path) -> None:
    """As on a full disk."""
    (tmp_path / "log.1").mkdir()
    log = tmp_path / "log"
    log.write_bytes(bytes(101))
    cut_log(log, 100)
    assert log.stat().st_size == 0


class _Growing(type(Path())):  # type: ignore[misc]
    """A log that a process appends to between two looks at it."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        found: os.stat_result = super().stat(follow_symlinks=follow_symlinks)
        with open(self, "ab") as log:
            log.write(b"x" * 500)
        return found


def test_what_is_kept_of_a_log_has_its_limit_while_a_process_writes(tmp_path: Path) -> None:
    log = _Growing(tmp_path / "log")
    log.write_bytes(bytes(1000))
    cut_log(log, 800)
    assert (tmp_path / "log.1").stat().st_size == 800
    assert (tmp_path / "log").read_bytes() == b""


def test_no_log_is_no_fault(tmp_path: Path) -> None:
    cut_log(tmp_path / "log", 100)
    assert not any(tmp_path.iterdir())


def test_cancelled_while_it_starts_a_process_is_ended_with_what_it_has_started() -> None:
    async def scenario() -> None:
        spawned: list[asyncio.subprocess.Process] = []
        is_there, goes_on = asyncio.Event(), asyncio.Event()

        async def spawn() -> asyncio.subprocess.Process:
            child = await asyncio.create_subprocess_exec(
                "sh",
                "-c",
                "sleep 1000 & echo started; wait",
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
            spawned.append(child)
            is_there.set()
            await goes_on.wait()
            return child

        starting = asyncio.create_task(started(spawn()))
        await is_there.wait()
        (child,) = spawned
        assert child.stdout is not None
        assert await child.stdout.readline() == b"started\n"
        starting.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        # Both have the other end of the pipe.
        assert await asyncio.wait_for(child.stdout.read(), 30) == b""

    asyncio.run(scenario())
