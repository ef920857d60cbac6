"""Sockets are accepted as fast as they may come, and what is not heard takes little: with sockets of the kernel's."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from magnetar.base.settings_connections import ConnectionRules, ListenerRules
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.quotas.model import DEFAULT, Entity, Limit
from magnetar.server import acceptor as module
from magnetar.server.acceptor import RETRY_S, Acceptor, Acceptors
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

PATIENCE_S = 20.0


class Greeter(asyncio.Protocol):
    """Says a word to whoever is let in."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"in")
        transport.close()


class FullOnce(socket.socket):
    """A listening socket of a process that has no file left when it is asked first."""

    was_full = False

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.was_full:
            self.was_full = True
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


class World:
    """One listener, whose clients are told by a word that they are in, and by an end that they are not."""

    def __init__(
        self, stack: ExitStack, *, held_max: int = 8, kind: type[socket.socket] = socket.socket
    ) -> None:
        self._stack = stack
        self.clock = FakeClock()
        self.quotas = ClientQuotas(MemoryMetadataStore(), self.clock)
        self.admission = Admission(self.clock, self.quotas)
        self.listening = stack.enter_context(kind())
        self.listening.bind(("127.0.0.1", 0))
        self.listening.listen(64)
        self.acceptors = Acceptors(self.clock, self.admission, held_max)
        self.acceptor: Acceptor = self.acceptors.listen("PLAINTEXT", self.listening, Greeter)

    async def come(self) -> socket.socket:
        one = self._stack.enter_context(socket.socket())
        one.setblocking(False)
        await asyncio.get_running_loop().sock_connect(one, self.listening.getsockname())
        return one

    @staticmethod
    async def hears(one: socket.socket) -> bytes:
        """What a client hears, empty when it is closed."""
        return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(one, 10), PATIENCE_S)

    async def close(self) -> None:
        self.acceptor.close()
        await self.acceptors.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as one:
        yield one


async def until(what: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not what():  # noqa: ASYNC110 - nothing here says so
            await asyncio.sleep(0)


def run(scenario: Callable[[], Any]) -> None:
    asyncio.run(scenario())


def test_of_those_that_are_held_the_first_goes_when_there_are_too_many(stack: ExitStack) -> None:
    async def scenario() -> None:
        world = World(stack, held_max=2)
        await world.quotas.change({Entity(None, None, DEFAULT): {Limit.CONNECTED: 1.0}})
        for _ in range(11):
            assert await world.hears(await world.come()) == b"in"
        held = [await world.come() for _ in range(3)]
        assert await world.hears(held[0]) == b"", "the third takes its place"
        world.clock.advance(1)
        assert [await world.hears(one) for one in held[1:]] == [b"", b""]
        assert await world.hears(await world.come()) == b"in"
        await world.close()

    run(scenario)


def test_a_stop_lets_go_of_those_that_are_held(stack: ExitStack) -> None:
    async def scenario() -> None:
        world = World(stack)
        await world.quotas.change({Entity(None, None, DEFAULT): {Limit.CONNECTED: 1.0}})
        for _ in range(11):
            assert await world.hears(await world.come()) == b"in"
        one = await world.come()
        await until(lambda: world.acceptors._held)
        await world.close()
        assert await world.hears(one) == b""
        world.clock.advance(10)

    run(scenario)


def test_a_listener_that_can_have_no_more_files_tries_again(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        world = World(stack, kind=FullOnce)
        one = await world.come()
        await until(lambda: caplog.records)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(world.hears(one), 0.05)
        world.clock.advance(RETRY_S)
        assert await world.hears(one) == b"in"
        await world.close()

    with caplog.at_level(logging.WARNING, logger=module.__name__):
        run(scenario)
    assert [one.getMessage() for one in caplog.records] == [
        "cannot accept connections now: Too many open files"
    ]


def test_a_listener_that_pauses_and_closes_does_not_go_on(stack: ExitStack) -> None:
    async def scenario() -> None:
        world = World(stack)
        world.admission.govern(ConnectionRules(ListenerRules(rate=1)))
        for _ in range(11):
            assert await world.hears(await world.come()) == b"in"
        await world.come()
        await until(lambda: world.acceptor._timer)
        await world.close()
        world.clock.advance(10)  # would listen on a socket that is closed

    run(scenario)
