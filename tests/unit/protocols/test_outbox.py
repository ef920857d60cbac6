"""What leaves in one write, in which order, what counts until then, and what a slow peer brings about."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.protocols.backpressure import Backpressure
from magnetar.protocols.outbox import JOIN_BYTES_MAX, JOIN_PART_BYTES_MAX, UNSENT_BYTES_MAX, Outbox, Place
from tests.unit.protocols.doubles import Connection

UNTAKEN_BYTES_MAX = 100
LARGE = JOIN_BYTES_MAX + 1


class World:
    def __init__(self, *untaken_bytes_max: int) -> None:
        self.peer = Connection()
        self.backpressure = Backpressure(self.peer, self.peer.traffic, 100, 1 << 20, lambda: None)
        self.outbox: Outbox[Place] = Outbox(
            self.peer, self.peer.traffic, self.backpressure, *untaken_bytes_max
        )

    def put(self, *parts: bytes) -> None:
        self.outbox.put(list(parts), sum(map(len, parts)))

    def reserve(self, size: int = 0) -> Place:
        place = Place(size)
        self.outbox.places.append(place)
        self.backpressure.began(size)
        return place

    def fill(self, place: Place, *parts: bytes) -> None:
        self.outbox.fill(place, list(parts), sum(map(len, parts)))

    def turn(self) -> list[list[bytes]]:
        """What was written at the end of this turn."""
        self.peer.writes.clear()
        self.peer.ends.have()
        return list(self.peer.writes)


# --- what is put -----------------------------------------------------------------------------------------------------


def test_what_is_put_in_one_turn_leaves_in_one_write_in_its_order() -> None:
    world = World()
    world.put(b"1", b"2")
    world.put(b"3")
    assert not world.peer.writes
    assert len(world.peer.ends.calls) == 1
    assert world.turn() == [[b"123"]]
    assert world.peer.sent_bytes == 3
    assert world.turn() == []
    world.put(b"4")
    assert world.turn() == [[b"4"]]
    assert world.peer.sent_bytes == 4


def test_with_the_answers_ends_the_pass_that_its_requests_shared() -> None:
    world = World()
    world.put(b"1")
    before = world.peer.turns.ended_passes
    world.turn()
    assert (before, world.peer.turns.ended_passes) == (0, 1)


def test_parts_are_joined_when_they_are_small_on_average() -> None:
    world = World()
    small, large = bytes(JOIN_PART_BYTES_MAX - 1), bytes(JOIN_PART_BYTES_MAX)
    world.put(small, large)
    assert world.turn() == [[small + large]]
    world.put(large, large)
    assert world.turn() == [[large, large]]


def test_a_flush_sends_at_once_and_leaves_nothing_for_later() -> None:
    world = World()
    world.put(b"1")
    world.outbox.flush()
    assert world.peer.writes == [[b"1"]]
    world.put(b"2")
    assert world.turn() == [[b"2"]]
    world.outbox.flush()
    assert world.peer.writes == [[b"2"]]


# --- what has a place ------------------------------------------------------------------------------------------------


def test_answers_leave_in_the_order_of_their_places() -> None:
    world = World()
    first, second, third = (world.reserve(10) for _ in range(3))
    world.fill(second, b"2")
    assert not world.peer.ends.calls, "nothing can leave"
    assert world.peer.queued_bytes == 30
    world.fill(first, b"1", b"!")
    world.fill(third, b"3")
    assert len(world.peer.ends.calls) == 1
    assert world.peer.queued_bytes == 30, "they count until they have left"
    assert world.turn() == [[b"1!", b"2", b"3"]]
    assert world.peer.sent_bytes == 4
    assert not world.outbox.places
    assert (world.backpressure.unanswered, world.peer.queued_bytes, world.peer.memory.used) == (0, 0, 0)


def test_an_answer_of_nothing_has_its_place_and_sends_nothing() -> None:
    world = World()
    first, second = world.reserve(10), world.reserve(10)
    world.fill(first)
    assert world.turn() == []
    assert world.backpressure.unanswered == 1
    world.fill(second, b"2")
    assert world.turn() == [[b"2"]]


def test_what_is_put_leaves_before_answers_that_are_ready() -> None:
    world = World()
    world.fill(world.reserve(), b"1")
    world.put(b"a")
    assert world.turn() == [[b"a", b"1"]]
    assert world.peer.sent_bytes == 2


@pytest.mark.parametrize("is_first", [False, True])
def test_a_large_answer_stays_in_pieces_and_counts_until_it_leaves(is_first: bool) -> None:
    world = World()
    before = None if is_first else world.reserve(5)
    place = world.reserve(7)
    parts = [b"x" * (LARGE // 2), b"y" * (LARGE - LARGE // 2)]
    world.fill(place, *parts)
    assert world.peer.memory.used == LARGE + (7 if is_first else 12)
    if before is not None:
        assert world.turn() == []
        world.fill(before, b"1")
    used: list[int] = []
    world.peer.when_sent = lambda: used.append(world.peer.memory.used)
    assert world.turn() == [parts if is_first else [b"1", *parts]]
    assert used == [7 if is_first else 12], "the socket counts from there on"
    assert world.peer.memory.used == 0


def test_an_answer_up_to_a_limit_is_one_piece_and_does_not_count() -> None:
    world = World()
    parts = [b"x", bytes(JOIN_BYTES_MAX - 1)]
    world.fill(world.reserve(), *parts)
    assert world.peer.memory.used == 0
    assert world.turn() == [[b"".join(parts)]]


def test_when_the_request_that_others_wait_for_is_answered_they_go_on() -> None:
    world = World()
    other, muting = world.reserve(), world.reserve()
    world.backpressure.at_work = muting
    world.backpressure.pause()
    world.fill(other, b"1")
    assert world.turn() == [[b"1"]]
    assert world.backpressure.at_work is muting
    is_read: list[bool] = []
    world.peer.when_sent = lambda: is_read.append(world.peer.is_read)
    world.fill(muting, b"2")
    assert world.turn() == [[b"2"]]
    assert world.backpressure.at_work is None
    assert is_read == [False], "first the answer leaves"
    assert world.peer.is_read


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_whatever_becomes_ready_when_the_order_is_kept(order: list[int], turns: list[bool]) -> None:
    world = World()
    places = [world.reserve(number) for number in range(6)]
    written: list[bytes] = []
    for number, ends in zip(order, turns, strict=True):
        world.fill(places[number], b"%d" % number)
        if ends:
            written += [part for write in world.turn() for part in write]
            missing = [number for number in range(6) if places[number].parts is None]
            assert len(written) == min(missing, default=6)
    written += [part for write in world.turn() for part in write]
    assert written == [b"%d" % number for number in range(6)]
    assert world.peer.queued_bytes == world.backpressure.unanswered == 0


# --- a slow peer -----------------------------------------------------------------------------------------------------


def test_nothing_is_read_from_a_slow_peer_where_nothing_may_pile_up() -> None:
    world = World()
    world.outbox.peer_is_slow(True)
    assert not world.peer.is_read
    assert world.backpressure.outbox_is_full
    world.outbox.peer_is_slow(False)
    assert world.peer.is_read


def test_a_slow_peer_is_read_from_until_too_much_has_piled_up() -> None:
    world = World(UNTAKEN_BYTES_MAX)
    world.put(bytes(UNTAKEN_BYTES_MAX))
    world.turn()
    for _ in range(2):
        world.outbox.peer_is_slow(True)
        assert world.peer.is_read
        world.put(bytes(UNTAKEN_BYTES_MAX - 1))
        assert world.peer.is_read
        world.put(b"1")
        assert not world.peer.is_read
        assert world.turn() == [[bytes(UNTAKEN_BYTES_MAX - 1) + b"1"]], "it is sent all the same"
        assert not world.peer.is_read
        world.outbox.peer_is_slow(False)
        assert world.peer.is_read
    world.put(bytes(UNTAKEN_BYTES_MAX))
    assert world.peer.is_read


def told_by(world: World) -> list[str]:
    told: list[str] = []
    world.outbox.when_writable.add(lambda: told.append("writable"))
    return told


def test_what_can_wait_is_not_sent_to_a_slow_peer_and_goes_on_afterwards() -> None:
    world = World(UNTAKEN_BYTES_MAX)
    told = told_by(world)
    assert world.outbox.is_writable
    world.outbox.peer_is_slow(True)
    assert not world.outbox.is_writable
    world.put(b"1")
    world.turn()
    assert not told
    world.outbox.peer_is_slow(False)
    assert told == ["writable"]
    assert world.outbox.is_writable
    world.outbox.peer_is_slow(True)
    world.outbox.peer_is_slow(False)
    assert told == ["writable"], "nothing has asked in between"


def test_one_turn_takes_so_much_that_can_wait_and_no_more() -> None:
    world = World()
    told = told_by(world)
    for number in (1, 2):
        world.put(bytes(UNSENT_BYTES_MAX - 1))
        assert world.outbox.is_writable
        world.put(b"1")
        assert not world.outbox.is_writable
        assert len(told) == number - 1
        world.turn()
        assert len(told) == number
        world.put(b"2")
        world.turn()
        assert len(told) == number


@pytest.mark.parametrize(("used", "most"), [(64, UNSENT_BYTES_MAX), (65, 31 << 18), (96, 1), (128, 1)])
def test_the_fuller_the_memory_the_less_leaves_in_one_turn(used: int, most: int) -> None:
    world = World()
    told = told_by(world)
    world.peer.memory.bytes_max = 128 << 20
    world.peer.memory.used = used << 20
    most = min(most, UNSENT_BYTES_MAX)
    if most > 1:
        world.put(bytes(most - 1))
    assert world.outbox.is_writable
    world.put(b"1")
    assert not world.outbox.is_writable
    world.turn()
    assert told == ["writable"]


def test_what_is_large_counts_until_the_socket_has_it() -> None:
    world = World()
    memory = world.peer.memory
    world.put(bytes(JOIN_BYTES_MAX))
    assert memory.used == 0
    world.put(bytes(JOIN_BYTES_MAX + 1))
    world.put(bytes(JOIN_BYTES_MAX + 2))
    assert memory.used == 2 * JOIN_BYTES_MAX + 3
    world.turn()
    assert memory.used == 0
    world.put(bytes(JOIN_BYTES_MAX + 1))
    world.outbox.close()
    assert memory.used == 0
    world.turn()
    assert memory.used == 0


def test_a_peer_that_becomes_slow_with_this_very_write_is_not_writable_after_it() -> None:
    world = World(UNTAKEN_BYTES_MAX)
    told = told_by(world)
    world.peer.when_sent = lambda: world.outbox.peer_is_slow(True)
    world.put(bytes(UNSENT_BYTES_MAX))
    assert not world.outbox.is_writable
    world.turn()
    assert not told
    world.outbox.peer_is_slow(False)
    assert told == ["writable"]


def test_what_can_wait_waits_while_others_fill_the_memory() -> None:
    world = World()
    told = told_by(world)
    world.peer.memory.is_crowded = True
    assert world.outbox.is_writable, "hardly any memory is in use"
    world.peer.memory.used = world.peer.memory.bytes_max
    assert not world.outbox.is_writable
    world.outbox.peer_is_slow(True)
    world.outbox.peer_is_slow(False)
    assert not told
    world.peer.memory.is_crowded = False
    (tell,) = world.peer.memory.for_room
    tell()
    assert told == ["writable"]
    assert world.outbox.is_writable


def test_a_connection_that_has_ended_waits_for_no_room() -> None:
    world = World()
    world.peer.memory.is_crowded, world.peer.memory.used = True, world.peer.memory.bytes_max
    assert not world.outbox.is_writable
    world.outbox.close()
    assert not world.peer.memory.for_room


def test_whatever_is_told_that_it_may_send_may_leave_meanwhile() -> None:
    world = World()
    told: list[str] = []

    def leave() -> None:
        told.append("told")
        world.outbox.when_writable.discard(leave)

    world.outbox.when_writable.add(leave)
    world.outbox.peer_is_slow(True)
    assert not world.outbox.is_writable
    world.outbox.peer_is_slow(False)
    assert told == ["told"]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_after_the_end_nothing_is_sent_and_nothing_counts() -> None:
    world = World()
    told = told_by(world)
    sent, first, second = (world.reserve(10) for _ in range(3))
    world.fill(sent, b"1")
    world.turn()
    world.fill(second, bytes(LARGE))
    world.put(b"2")
    left: list[Any] = list(world.outbox.close())
    assert left == [first, second]
    assert not world.outbox.places
    assert not world.outbox.when_writable
    assert (world.backpressure.unanswered, world.peer.queued_bytes, world.peer.memory.used) == (0, 0, 0)
    world.put(b"3")
    assert world.turn() == []
    world.put(b"4")
    assert not world.peer.ends.calls
    assert not told
