"""What the parts of a server say of themselves, put together; and what is tried out beside the event loop."""

import asyncio
from pathlib import Path

import pytest

from magnetar.base.errors import StorageError
from magnetar.broker.upkeep import health as module
from magnetar.broker.upkeep.health import (
    PATIENCE_S,
    PROBE_EVERY_S,
    PROBE_S_MAX,
    Health,
    files_probe,
    space_probe,
)
from magnetar.testing.clock import FakeClock


async def impatient(health: Health, clock: FakeClock) -> dict[str, str | None]:
    """What a client gets if no probe ends while it waits."""
    asked = asyncio.ensure_future(health.checks())
    for _ in range(5):
        await asyncio.sleep(0)
    assert not asked.done()
    clock.advance(PATIENCE_S)
    return await asked


def test_every_part_is_asked_each_time(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        health = Health(FakeClock())
        wrong: dict[str, str | None] = {"a": None, "b": None}
        health.register("a", lambda: wrong["a"])
        health.register("b", lambda: wrong["b"])
        assert await health.checks() == {"a": None, "b": None}
        wrong["b"] = "the disk is full"
        for _ in range(3):
            assert await health.checks() == {"a": None, "b": "the disk is full"}
        wrong["b"] = None
        assert await health.checks() == {"a": None, "b": None}

    asyncio.run(main())
    assert [one.levelname for one in caplog.records if "health" in one.message] == ["WARNING"]


def test_a_probe_that_hangs_is_not_waited_for_and_is_what_is_wrong() -> None:
    """A disk that has stopped answering: the thread that asks it comes back when it does."""

    async def main() -> None:
        clock = FakeClock()
        health = Health(clock)
        disk = asyncio.Event()
        attempts = 0

        async def attempt() -> str | None:
            nonlocal attempts
            attempts += 1
            await disk.wait()
            return None

        health.probe("disk", "A write", attempt)
        assert await impatient(health, clock) == {"disk": None}  # not known yet
        clock.advance(PROBE_S_MAX + 1)
        assert await impatient(health, clock) == {
            "disk": "A write has not been answered for 6 s: see to the disk"
        }
        assert attempts == 1  # one thread that hangs is enough
        disk.set()
        assert await health.checks() == {"disk": None}

    asyncio.run(main())


def test_a_probe_is_tried_now_and_then_and_only_when_a_client_asks() -> None:
    async def main() -> None:
        clock = FakeClock()
        health = Health(clock)
        answers: list[str | Exception | None] = [
            OSError(28, "No space left"),
            StorageError("closed"),
            "why",
            None,
        ]

        async def attempt() -> str | None:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        health.probe("disk", "A write", attempt)
        clock.advance(100)
        found = []
        for _ in range(4):
            # Within moments, the last answer is good enough.
            found += [(await health.checks())["disk"] for _ in range(3)]
            clock.advance(PROBE_EVERY_S)
        no_space, closed = "A write fails: [Errno 28] No space left", "A write fails: closed"
        assert found == [no_space] * 3 + [closed] * 3 + ["why"] * 3 + [None] * 3
        assert answers == []

    asyncio.run(main())


def test_a_probe_under_way_ends_with_the_server() -> None:
    async def main() -> None:
        clock = FakeClock()
        health = Health(clock)

        async def attempt() -> str | None:
            await asyncio.Event().wait()
            return None

        health.probe("disk", "A write", attempt)
        await impatient(health, clock)
        await health.close()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


def test_space_and_files_are_looked_at_on_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        assert await space_probe(tmp_path, 0)() is None
        said = await space_probe(tmp_path, 1 << 62)()
        assert said is not None
        assert "make room" in said
        for name in range(100):
            (tmp_path / str(name)).touch()
        monkeypatch.setattr(module, "_FILES", tmp_path)
        assert await files_probe(106)() is None
        said = await files_probe(105)()
        assert said is not None
        assert said.startswith("100 of 105 files are open")

    asyncio.run(main())
