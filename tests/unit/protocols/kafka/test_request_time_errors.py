"""What the measuring of a request's time keeps of an error: nothing."""

import asyncio

from magnetar.protocols.kafka.request_time import RequestTime
from magnetar.testing.clock import FakeClock
from tests.unit.circles import error_stays
from tests.unit.protocols.kafka.test_request_time import Meter


def test_what_work_raises_keeps_nothing_of_it() -> None:
    class Found(Exception):
        pass

    async def work() -> None:
        await asyncio.sleep(0)
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(waiting.set_exception, Found())
        try:
            await waiting
        finally:
            del waiting

    async def scenario() -> None:
        time = RequestTime(Meter(), FakeClock().monotonic)
        assert not await error_stays(Found, lambda: time.of(work()))

    asyncio.run(scenario())
