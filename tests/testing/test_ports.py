"""Ports that tests choose for their servers: no other test of the machine has them."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from magnetar.testing import ports
from magnetar.testing.ports import CHOSEN_MAX, EPHEMERAL_PORT_MIN, PORT_MIN, free_ports

FEW = range(PORT_MIN, PORT_MIN + 80)  # so few that two processes would meet in them
OTHER = f"""
import signal
from magnetar.testing.ports import free_ports
print(*(port for _ in range(10) for port in free_ports(2, {FEW!r})), flush=True)
signal.pause()
"""


@contextmanager
def of_another_process() -> Iterator[set[int]]:
    """What a process that lives has chosen among FEW; it is killed at the end."""
    process = subprocess.Popen([sys.executable, "-c", OTHER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield set(map(int, process.stdout.readline().split()))
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()


@pytest.fixture(autouse=True)
def nothing_is_chosen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test begins as a process does."""
    before = set(ports._chosen)
    monkeypatch.setattr(ports, "_chosen", type(ports._chosen)())
    yield
    for port in set(ports._chosen) - before:
        ports._unlock([port])


def test_ports_are_free_distinct_and_below_the_ephemeral_range() -> None:
    found = free_ports(3)
    assert found == list(range(found[0], found[0] + 3))
    assert found[0] >= PORT_MIN
    assert found[-1] < EPHEMERAL_PORT_MIN


def test_what_was_chosen_is_not_chosen_again_before_a_server_listens_there() -> None:
    """A server of three listeners was given one of them for its Pulsar port as well, and did not start."""
    found = [port for _ in range(300) for port in free_ports(3)]
    assert len(set(found)) == 900


def test_what_a_server_listens_on_is_not_chosen() -> None:
    among = range(PORT_MIN + 100, PORT_MIN + 110)
    (taken,) = free_ports(1, among)
    with socket.create_server(("127.0.0.1", taken)):
        ports._unlock([ports._chosen.pop()])
        assert taken not in {free_ports(1, among)[0] for _ in range(4)}


def test_two_processes_choose_different_ports() -> None:
    """Two test runs on one machine: each had chosen what a server of the other was about to listen on."""
    with of_another_process() as theirs:
        ours = {port for _ in range(10) for port in free_ports(2, FEW)}
        assert len(theirs) == len(ours) == 20
        assert not theirs & ours


def test_what_a_killed_process_had_chosen_is_free_again() -> None:
    with of_another_process() as theirs:
        pass
    found: set[int] = set()
    while not found & theirs:
        found.update(free_ports(1, FEW))


def test_a_process_gives_back_what_it_chose_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ports.PORTS) / 16 > CHOSEN_MAX, "sixteen workers have room"
    monkeypatch.setattr(ports, "CHOSEN_MAX", 4)
    found = [free_ports(2, FEW)[0] for _ in range(100)]  # more than there are
    assert len(set(found)) < 100
