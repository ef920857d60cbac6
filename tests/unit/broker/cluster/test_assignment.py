"""Bundles spread over brokers by weight, and none moves that need not."""

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from magnetar.broker.cluster.bundles import Bundle, bundles_of
from magnetar.broker.cluster.ownership.assignment import TOLERANCE, Snapshot, homes, moves

BUNDLES = [*bundles_of("t/a", 8), *bundles_of("t/b", 4)]
BROKERS = ("b1", "b2", "b3")
LOADS = st.dictionaries(st.sampled_from(BUNDLES), st.floats(0, 20))
OWNERS = st.dictionaries(st.sampled_from(BUNDLES), st.sampled_from(BROKERS))


def weights(snapshot: Snapshot) -> dict[str, float]:
    found = dict.fromkeys(sorted(snapshot.brokers), 0.0)
    for bundle, broker in snapshot.owners.items():
        found[broker] += snapshot.weight(bundle)
    return found


def moved(snapshot: Snapshot, changes: dict[Bundle, str]) -> Snapshot:
    return Snapshot(snapshot.brokers, {**snapshot.owners, **changes}, snapshot.loads)


@given(OWNERS)
def test_bundles_without_an_owner_go_where_there_are_fewest(owners: dict[Bundle, str]) -> None:
    orphans = [bundle for bundle in BUNDLES if bundle not in owners]
    found = homes(Snapshot(BROKERS, owners), orphans)
    assert found.keys() == set(orphans)
    before = Counter(owners.values())
    after = before + Counter(found.values())
    given_to = [after[broker] for broker in BROKERS if after[broker] > before[broker]]
    assert all(count <= min(after[broker] for broker in BROKERS) + 1 for count in given_to)


def test_the_heaviest_bundles_are_given_first() -> None:
    heavy, *light = BUNDLES[:4]
    found = homes(Snapshot(("b1", "b2"), {}, {heavy: 2.0}), [*light, heavy])
    assert found == {heavy: "b1", light[0]: "b2", light[1]: "b2", light[2]: "b2"}


def test_of_brokers_with_equal_weight_the_one_with_fewer_neighbours_gets_a_bundle() -> None:
    first, second, *_ = bundles_of("t/a", 8)
    other = bundles_of("t/b", 4)[0]
    assert homes(Snapshot(("b1", "b2"), {first: "b1", other: "b2"}), [second]) == {second: "b2"}


def test_without_brokers_nothing_is_given_or_moved() -> None:
    assert homes(Snapshot((), {}), BUNDLES) == {}
    assert moves(Snapshot((), {}), 5) == {}


@given(OWNERS, LOADS)
def test_moves_end_and_none_moves_back(owners: dict[Bundle, str], loads: dict[Bundle, float]) -> None:
    snapshot = Snapshot(BROKERS, owners, loads)
    spreads = [sum(weight**2 for weight in weights(snapshot).values())]
    while change := moves(snapshot, 1):
        ((bundle, taker),) = change.items()
        giver = snapshot.owners[bundle]
        snapshot = moved(snapshot, change)
        assert weights(snapshot)[giver] >= weights(snapshot)[taker] - 1e-9
        spreads.append(sum(weight**2 for weight in weights(snapshot).values()))
    assert all(later < earlier for earlier, later in pairwise(spreads))


@given(OWNERS)
def test_in_the_end_brokers_have_about_the_same_number(owners: dict[Bundle, str]) -> None:
    snapshot = Snapshot(BROKERS, owners)
    while change := moves(snapshot, 1):
        snapshot = moved(snapshot, change)
    counts = weights(snapshot).values()
    assert max(counts) - min(counts) <= max(1, TOLERANCE * len(owners) / len(BROKERS))


def test_a_small_difference_moves_nothing() -> None:
    many = bundles_of("t/a", 60)
    uneven = dict(zip(many, ["b1"] * 21 + ["b2"] * 20 + ["b3"] * 19, strict=True))
    assert moves(Snapshot(BROKERS, uneven), 5) == {}
    uneven[many[-1]] = "b1"
    assert list(moves(Snapshot(BROKERS, uneven), 5).values()) == ["b3"]


def test_a_bundle_too_heavy_to_help_stays_and_the_next_broker_gives() -> None:
    heavy, *rest = BUNDLES[:5]
    owners = {heavy: "b1", **dict.fromkeys(rest, "b2")}
    found = moves(Snapshot(BROKERS, owners, {heavy: 20.0}), 9)
    assert heavy not in found
    assert list(found.values()) == ["b3", "b3"]


def test_no_more_move_than_may_and_none_of_those_that_are_fixed() -> None:
    snapshot = Snapshot(BROKERS, dict.fromkeys(BUNDLES, "b1"))
    assert len(moves(snapshot, 3)) == 3
    assert moves(snapshot, 0) == {}
    assert moves(snapshot, 9, fixed=BUNDLES) == {}
    fixed = moves(snapshot, 3).keys()
    assert not moves(snapshot, 9, fixed).keys() & fixed
