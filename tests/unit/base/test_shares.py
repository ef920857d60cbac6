"""Room that one owner alone cannot fill."""

from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.shares import NO_OWNER, Shares


def test_an_owner_has_half_of_what_the_others_leave() -> None:
    shares = Shares(100)
    assert shares.room("ann") == 50
    shares.take("ann", 50)
    assert (shares.room("ann"), shares.room("bob"), shares.room(NO_OWNER)) == (0, 25, 50)
    shares.take("bob", 25)
    assert shares.room("ann") == -12  # others have come; what it has it keeps
    shares.give("ann", 50)
    assert (shares.of("ann"), shares.of("bob"), shares.used) == (0, 25, 25)
    assert shares.room("ann") == 38


def test_whoever_is_none_in_particular_may_have_all() -> None:
    shares = Shares(3)
    for _ in range(3):
        assert shares.room(NO_OWNER)
        shares.take(NO_OWNER)
    assert (shares.room(NO_OWNER), shares.room("ann")) == (0, 0)
    shares.give(NO_OWNER)
    assert shares.room("ann") == 1


@given(st.integers(1, 1000), st.integers(1, 20))
def test_each_that_comes_finds_room_until_there_is_nearly_none(most: int, owners: int) -> None:
    shares = Shares(most)
    for owner in range(owners):
        left = most - shares.used
        room = shares.room(owner)
        assert room == (left + 1) // 2
        shares.take(owner, room)
    assert 0 <= shares.used <= most
