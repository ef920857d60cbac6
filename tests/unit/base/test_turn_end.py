"""What waits for the end of a turn of the event loop is called once: then, or when a part that reports says so."""

import asyncio
from typing import Any

import pytest

from magnetar.base.turn_end import TurnEnd


def test_what_waits_is_called_once_when_the_turn_ends() -> None:
    async def scenario() -> None:
        end, called = TurnEnd(), list[str]()
        end.soon(lambda: called.append("first"))
        end.soon(lambda: called.append("second"))
        assert called == []
        await asyncio.sleep(0)
        assert called == ["first", "second"]
        end.soon(lambda: called.append("third"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert called == ["first", "second", "third"]

    asyncio.run(scenario())


def test_what_waits_is_called_before_that_when_a_part_has_reported() -> None:
    async def scenario() -> None:
        end, called = TurnEnd(), list[str]()
        end.soon(lambda: called.append("answer"))
        end.now()
        assert called == ["answer"]
        end.soon(lambda: called.append("later"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert called == ["answer", "later"]

    asyncio.run(scenario())


def test_what_is_put_while_others_are_called_waits_for_the_next_time() -> None:
    async def scenario() -> None:
        end, called = TurnEnd(), list[str]()

        def again() -> None:
            called.append("again")
            if len(called) < 3:
                end.soon(again)

        end.soon(again)
        end.now()
        assert called == ["again"]
        for _ in range(3):
            await asyncio.sleep(0)
        assert called == ["again"] * 3

    asyncio.run(scenario())


@pytest.mark.parametrize("early", [False, True])
def test_one_that_fails_keeps_no_other_from_being_called(early: bool) -> None:
    async def scenario() -> None:
        end, called, failures = TurnEnd(), list[str](), list[Any]()
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))

        def fail() -> None:
            raise ValueError("no")

        end.soon(fail)
        end.soon(lambda: called.append("other"))
        if early:
            end.now()
        await asyncio.sleep(0)
        assert called == ["other"]
        assert [str(one["exception"]) for one in failures] == ["no"]

    asyncio.run(scenario())
