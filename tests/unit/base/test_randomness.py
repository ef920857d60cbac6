"""Ids and random numbers."""

from magnetar.base import randomness


def draw() -> list[object]:
    return [
        randomness.new_uuid(),
        randomness.hex_token(4),
        randomness.bits(62),
        randomness.between(1, 1 << 31),
    ]


def test_a_seed_repeats_itself_and_only_as_long_as_it_is_asked_for() -> None:
    with randomness.seeded(7):
        first = draw()
    with randomness.seeded(7):
        assert draw() == first
    with randomness.seeded(8):
        assert draw() != first
    assert draw() != first


def test_ids_have_their_forms() -> None:
    assert randomness.new_uuid().version == 4
    assert all(len(randomness.hex_token(3)) == 6 for _ in range(300))  # leading zeroes, too
    assert {randomness.between(2, 4) for _ in range(300)} == {2, 3, 4}
    assert all(0 <= randomness.bits(3) < 8 for _ in range(100))
