"""A reader of stored records that waits for more, and is refused meanwhile."""

import asyncio
from typing import Any

from magnetar.admin.routes import segments
from magnetar.base.errors import StorageError
from tests.unit.circles import error_stays


class Reader:
    is_crowded = False

    async def wait(self, offset: int, wait_s: float) -> None:
        await asyncio.sleep(0)
        raise StorageError("its right was taken")


class Connected:
    """A request whose client stays."""

    def __init__(self) -> None:
        self.is_listening = False

    async def receive(self) -> Any:
        self.is_listening = True
        try:
            await asyncio.Event().wait()
        finally:
            self.is_listening = False


def test_a_wait_that_fails_leaves_nothing() -> None:
    """It went on to listen for the client's end; and the error had the wait that had brought it."""

    async def scenario() -> None:
        request: Any = Connected()
        reader: Any = Reader()
        assert not await error_stays(StorageError, lambda: segments._wait(request, reader, 0, 1000))
        assert not request.is_listening

    asyncio.run(scenario())


def test_a_client_that_goes_ends_its_wait() -> None:
    async def scenario() -> None:
        class Gone(Connected):
            async def receive(self) -> Any:
                return {"type": "http.disconnect"}

        class Waiting(Reader):
            async def wait(self, offset: int, wait_s: float) -> None:
                await asyncio.Event().wait()

        request: Any = Gone()
        reader: Any = Waiting()
        async with asyncio.timeout(10):
            await segments._wait(request, reader, 0, 1000)

    asyncio.run(scenario())
