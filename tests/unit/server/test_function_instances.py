"""An instance of a function as the server hears it, without a process."""

import asyncio
import itertools
import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from magnetar.broker.jobs.errors import InvalidFunction
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.model import InstanceSays
from magnetar.broker.security.model import Principal
from magnetar.server import function_instances
from magnetar.server.function_instances import LINES_PER_S, Places, _Instance
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.function_world import functions_of
from tests.unit.circles import error_stays

FUNCTION = new_function("t", "n", "f", {}, "f.py", Principal("User", "alice"))


class Heard(Functions):
    """Counts what instances say."""

    said = 0

    def heard(self, function: Any, instance: int, says: InstanceSays) -> None:
        self.said += 1


def that_count(clock: FakeClock) -> Heard:
    return functions_of(Heard, MemoryMetadataStore(), clock)


def test_an_instance_that_says_very_much_is_heard_slowly(tmp_path: Path) -> None:
    """Each line is work of the event loop, which belongs to all clients."""

    async def scenario() -> None:
        clock = FakeClock()
        functions = that_count(clock)
        instance = _Instance(functions, clock, FUNCTION, 0, Places("pulsar://localhost", tmp_path))
        output = asyncio.StreamReader(limit=function_instances.LINE_BYTES_MAX)
        line = json.dumps({"running": True}).encode() + b"\n"
        output.feed_data(line * 3 * LINES_PER_S)
        output.feed_eof()
        child: Any = SimpleNamespace(stdout=output, stdin=None)
        hearing = asyncio.create_task(instance._hear(child))
        counts = []
        for _ in range(4):
            for _ in range(2000):
                await asyncio.sleep(0)
            counts.append(functions.said)
            clock.advance(0.5)
        assert counts[0] <= LINES_PER_S // 5
        assert all(after - before <= LINES_PER_S for before, after in itertools.pairwise(counts))
        for _ in range(4 * LINES_PER_S):
            clock.advance(0.01)
            await asyncio.sleep(0)
        await hearing
        assert functions.said == 3 * LINES_PER_S, "nothing is lost"

    asyncio.run(scenario())


def test_what_a_trigger_fails_with_does_not_stay(tmp_path: Path) -> None:
    """It had what the function was to work on."""

    class Process:
        def __init__(self, instance: _Instance) -> None:
            self.stdin = self
            self._instance = instance

        def write(self, line: bytes) -> None:
            number = json.loads(line)["trigger"]["id"]
            output = {"id": number, "error": "the function has failed"}
            asyncio.get_running_loop().call_soon(self._instance._take_output, output)

        async def drain(self) -> None:
            pass

    async def scenario() -> None:
        clock = FakeClock()
        instance = _Instance(that_count(clock), clock, FUNCTION, 0, Places("pulsar://localhost", tmp_path))
        child: Any = Process(instance)
        assert not await error_stays(InvalidFunction, lambda: instance._trigger(child, "t", b"x"))

    asyncio.run(scenario())


def test_a_folder_that_an_earlier_process_has_kept_is_not_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has left there may be a link, which the server would follow as itself."""
    clock = FakeClock()
    places = Places("pulsar://localhost", tmp_path)
    instance = _Instance(that_count(clock), clock, FUNCTION, 0, places)
    work = places.folder_of(FUNCTION.id, 0) / function_instances.WORK
    work.mkdir(parents=True)
    secret = tmp_path / "secret"
    secret.write_text("the server's")
    (work / FUNCTION.file_name).symlink_to(secret)
    monkeypatch.setattr(shutil, "rmtree", lambda path, **_: None)
    with pytest.raises(FileExistsError):
        instance._furnish(b"code")
    monkeypatch.undo()
    instance._furnish(b"code")
    assert (work / FUNCTION.file_name).read_bytes() == b"code"
    assert secret.read_text() == "the server's"


REPORT = {
    "numbers": {"receivedTotal": 1},
    "one_minute": {},
    "metrics": {},
    "last_invocation_ms": 0,
    "user_exceptions": [],
    "system_exceptions": [],
}


def hear(tmp_path: Path, *lines: object) -> tuple[InstanceSays, str]:
    """What is known of an instance that has said these lines, and why it is ended."""

    async def scenario() -> tuple[InstanceSays, str]:
        clock = FakeClock()
        instance = _Instance(that_count(clock), clock, FUNCTION, 0, Places("pulsar://localhost", tmp_path))
        output = asyncio.StreamReader(limit=function_instances.LINE_BYTES_MAX)
        for line in lines:
            output.feed_data(json.dumps(line).encode() + b"\n")
        output.feed_eof()
        child: Any = SimpleNamespace(stdout=output, stdin=None)
        await instance._hear(child)
        return instance._says, instance._failure

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        {"numbers": {"receivedTotal": 10**400}},
        {"last_invocation_ms": math.inf},
        {"user_exceptions": [{"text": "", "at_ms": math.inf}]},
    ],
    ids=["count", "time", "exception"],
)
def test_an_instance_that_says_a_number_beyond_all_is_ended(tmp_path: Path, change: dict[str, Any]) -> None:
    """The exception ended the task that waits between two processes: the next one began at once, without an end."""
    assert hear(tmp_path, {"report": REPORT | change})[1]


def test_answers_can_carry_all_texts_of_an_instance(tmp_path: Path) -> None:
    half = "\ud800"
    troubles = [{"text": f"no file {half}", "at_ms": 1}]
    report = REPORT | {"metrics": {half: 1}, "user_exceptions": troubles, "system_exceptions": troubles}
    says, failure = hear(tmp_path, {"report": report}, {"failed": half})
    texts = [failure, *says.metrics, *(one.text for one in (*says.user_exceptions, *says.system_exceptions))]
    assert [text.encode() for text in texts] == [b"?", b"?", b"no file ?", b"no file ?"]
