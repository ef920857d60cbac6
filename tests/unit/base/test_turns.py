"""Sessions with more to do: they share one turn of the event loop, and each gets on."""

import asyncio
from functools import partial

from magnetar.base.turns import TURN_S, Turns


class Worker:
    """Has `left` pieces of work, each of which takes `takes_s`."""

    def __init__(self, turns: Turns, now_s: list[float], left: int, takes_s: float) -> None:
        self._turns = turns
        self._now_s = now_s
        self._takes_s = takes_s
        self.left = left
        turns.wait(self._go_on)

    def _go_on(self) -> None:
        self._now_s[0] += self._takes_s
        self.left -= 1
        if self.left:
            self._turns.wait(self._go_on)


def test_a_hundred_that_go_on_do_not_make_one_turn_of_the_loop_a_hundred_times_as_long() -> None:
    async def scenario() -> None:
        now_s = [0.0]
        turns = Turns(lambda: now_s[0])
        workers = [Worker(turns, now_s, 3, TURN_S) for _ in range(100)]
        rounds = 0
        while any(worker.left for worker in workers):
            before_s = now_s[0]
            await asyncio.sleep(0)
            assert now_s[0] - before_s < TURN_S * 1.5
            lefts = [worker.left for worker in workers]
            assert max(lefts) - min(lefts) <= 1, "none has a second turn before all others had their first"
            rounds += 1
        assert rounds <= 301

    asyncio.run(scenario())


def test_those_with_little_to_do_share_a_turn_and_have_one_each() -> None:
    async def scenario() -> None:
        now_s = [0.0]
        turns = Turns(lambda: now_s[0])
        workers = [Worker(turns, now_s, 2, TURN_S / 100) for _ in range(10)]
        await asyncio.sleep(0)
        assert [worker.left for worker in workers] == [1] * 10
        await asyncio.sleep(0)
        assert [worker.left for worker in workers] == [0] * 10

    asyncio.run(scenario())


def test_one_that_fails_does_not_end_the_turns_of_the_others() -> None:
    async def scenario() -> None:
        def fail() -> None:
            raise RuntimeError("unforeseen")

        caught: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: caught.append(context["exception"])
        )
        turns, done = Turns(lambda: 0.0), []
        turns.wait(fail)
        turns.wait(lambda: done.append(True))
        for _ in range(3):
            await asyncio.sleep(0)
        assert done == [True]
        assert len(caught) == 1

    asyncio.run(scenario())


def test_what_comes_in_one_pass_shares_its_time_and_the_next_pass_has_its_own() -> None:
    async def scenario() -> None:
        turns = Turns(lambda: 0.0)
        turns.spend(TURN_S * 0.75)
        assert turns.left_s == TURN_S * 0.25
        turns.spend(TURN_S * 0.5)
        assert turns.left_s < 0
        await asyncio.sleep(0)
        assert turns.left_s == TURN_S

    asyncio.run(scenario())


def test_what_a_call_leads_to_counts_in_the_pass_in_which_it_is_called() -> None:
    async def scenario() -> None:
        turns = Turns(lambda: 0.0)
        called: list[int] = []
        for number in range(10):
            turns.wait(partial(called.append, number), TURN_S / 8)
        await asyncio.sleep(0)
        assert called == [0, 1, 2, 3]
        await asyncio.sleep(0)
        assert called == [0, 1, 2, 3, 4, 5, 6, 7]

    asyncio.run(scenario())


def test_the_answers_of_many_connections_end_a_pass_once() -> None:
    async def scenario() -> None:
        turns = Turns(lambda: 0.0)
        turns.has_received = True
        turns.spend(TURN_S / 2)
        turns.end_pass()
        assert turns.left_s == TURN_S
        turns.spend(TURN_S / 2)  # what one of the answers let go on
        turns.end_pass()
        assert turns.left_s == TURN_S / 2

    asyncio.run(scenario())


def test_those_that_wait_leave_half_of_a_pass_to_what_has_just_come() -> None:
    async def scenario() -> None:
        now_s = [0.0]
        turns = Turns(lambda: now_s[0])
        workers = [Worker(turns, now_s, 1, TURN_S / 10) for _ in range(10)]
        await asyncio.sleep(0)
        assert sum(worker.left for worker in workers) == 5
        assert TURN_S * 0.4 < turns.left_s <= TURN_S / 2

    asyncio.run(scenario())
