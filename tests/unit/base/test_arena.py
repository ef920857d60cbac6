"""The arena never hands a block out twice while a view of it lives, and always gets it back afterwards."""

import ctypes
import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from magnetar.base.arena import (
    BLOCK_BYTES_MAX,
    PAGE_BYTES,
    SLAB_BYTES,
    SLABS_AHEAD,
    Arena,
    class_bytes,
)

MIB = 1 << 20


def address(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_ubyte.from_buffer(view))


@pytest.mark.parametrize("size", [1, 4095, 4096, 4097, 20_000, 65_536, 65_537, MIB, MIB + 1, 5 * MIB])
def test_a_view_has_the_size_asked_for_and_a_page_aligned_address(size: int) -> None:
    view = Arena(64 * MIB).take(size)
    assert len(view) == size
    assert not view.readonly
    assert view.format == "B"
    assert address(view) % PAGE_BYTES == 0


@given(st.integers(1, BLOCK_BYTES_MAX))
def test_classes_are_whole_pages_and_waste_at_most_a_quarter(size: int) -> None:
    block = class_bytes(size)
    assert block % PAGE_BYTES == 0
    assert size <= block <= max(size * 1.25, size + PAGE_BYTES - 1)
    assert class_bytes(block) == block


@pytest.mark.parametrize("size", [-1, BLOCK_BYTES_MAX + 1])
def test_sizes_out_of_range_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="between 0 and"):
        Arena(MIB).take(size)


def test_an_empty_view_is_fine() -> None:
    assert len(Arena(MIB).take(0)) == 0


def test_memory_is_recycled_when_the_last_slice_dies_and_not_before() -> None:
    arena = Arena(4 * MIB)
    view = arena.take(MIB)
    place = address(view)
    view[100:105] = b"hello"
    piece = view[100:200][:5]
    del view
    assert arena.bytes_free() == 0
    other = arena.take(MIB)
    assert address(other) != place
    other[:] = bytes(MIB)
    assert bytes(piece) == b"hello"
    del piece
    assert arena.bytes_free() == MIB
    assert address(arena.take(MIB)) == place


def test_a_slice_outlives_the_arena() -> None:
    arena = Arena(MIB)
    piece = arena.take(4096)[:3]
    piece[:] = b"abc"
    del arena
    gc.collect()
    assert bytes(piece) == b"abc"


def test_full_arena_serves_plain_memory_that_is_aligned_too() -> None:
    arena = Arena(2 * MIB)
    held = [arena.take(MIB) for _ in range(2)]
    extra = arena.take(MIB)
    assert arena.bytes_overflowed == MIB
    assert arena.bytes_mapped == 2 * MIB
    assert address(extra) % PAGE_BYTES == 0
    assert len({address(v) for v in [*held, extra]}) == 3


def test_idle_slabs_of_other_classes_make_room() -> None:
    arena = Arena(2 * MIB)
    for view in [arena.take(MIB), arena.take(MIB)]:
        view[:1] = b"x"
    del view
    small = [arena.take(4096) for _ in range(SLAB_BYTES // 4096)]
    assert arena.bytes_overflowed == 0
    assert arena.bytes_mapped <= 2 * MIB
    assert len({address(v) for v in small}) == len(small)


def test_a_slab_with_one_block_in_use_is_not_given_back() -> None:
    arena = Arena(SLAB_BYTES)
    held = arena.take(4096)
    held[:] = b"h" * 4096
    big = arena.take(SLAB_BYTES)
    assert arena.bytes_overflowed == SLAB_BYTES
    big[:] = bytes(SLAB_BYTES)
    assert bytes(held) == b"h" * 4096
    neighbours = [arena.take(4096) for _ in range(SLAB_BYTES // 4096 - 1)]
    assert arena.bytes_overflowed == SLAB_BYTES
    assert len({address(v) for v in [held, *neighbours]}) == SLAB_BYTES // 4096


def test_what_lies_idle_in_one_class_serves_another_before_fresh_memory_does() -> None:
    arena = Arena(16 * MIB)
    held = [arena.take(4096) for _ in range(10 * SLAB_BYTES // 4096)]
    places = {address(view) for view in held}
    mapped = arena.bytes_mapped
    del held
    other = [arena.take(60_000) for _ in range(8)]
    assert arena.bytes_mapped == mapped
    assert {address(view) for view in other} <= places
    assert len({address(view) for view in other}) == 8


def test_classes_in_use_by_turns_do_not_take_each_others_only_slab() -> None:
    arena = Arena(16 * MIB)
    places: list[set[int]] = [set(), set()]
    for _ in range(5):
        for number, size in enumerate((4096, 60_000)):
            places[number].add(address(arena.take(size)))
    assert [len(each) for each in places] == [1, 1]


def test_the_next_slabs_are_touched_before_they_are_wanted() -> None:
    arena = Arena(512 * MIB)
    slab = arena._slab_bytes
    held = [arena.take(MIB) for _ in range(slab // MIB)]
    assert arena._touching is None, "one slab is no sign of volume"
    held.append(arena.take(MIB))
    assert arena._touching is not None
    arena._touching.result(30)
    assert arena.bytes_mapped == (2 + SLABS_AHEAD) * slab
    assert arena.bytes_free() == arena.bytes_mapped - len(held) * MIB
    touched = [address(memoryview(mapping)) for mapping in arena._idle]
    held += [arena.take(MIB) for _ in range(2 * slab // MIB - 1)]
    assert any(place <= address(held[-1]) < place + slab for place in touched)
    assert arena.bytes_overflowed == 0


@given(
    st.lists(st.tuples(st.sampled_from([100, 4096, 9000, 70_000, 300_000]), st.integers(0, 7)), max_size=60)
)
def test_no_two_living_views_overlap(steps: list[tuple[int, int]]) -> None:
    arena = Arena(MIB)
    held: dict[int, tuple[memoryview, int]] = {}
    for number, (size, slot) in enumerate(steps):
        held.pop(slot, None)
        view = arena.take(size)
        view[:] = bytes([number % 251]) * size
        held[slot] = (view[size // 2 :], number % 251)
        assert arena.bytes_mapped <= MIB
        for piece, fill in held.values():
            assert bytes(piece) == bytes([fill]) * len(piece)


def test_threads_never_share_a_block() -> None:
    arena = Arena(2 * MIB)
    wrong: list[int] = []

    def work(fill: int) -> None:
        for turn in range(400):
            size = (5000, 20_000, 300_000)[turn % 3]
            view = arena.take(size)
            view[:] = bytes([fill]) * size
            if view[0] != fill or view[size - 1] != fill or bytes(view).count(fill) != size:
                wrong.append(turn)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
