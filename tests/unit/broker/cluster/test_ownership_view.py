"""A view is what its broker has heard, and finds the record of a position."""

import json

from magnetar.broker.cluster.bundles import LAST, bundles_of
from magnetar.broker.cluster.model import Endpoint, Node
from magnetar.broker.cluster.ownership.records import (
    BROKERS,
    Record,
    Wish,
    first_records,
    put_loads,
    put_record,
    record_path,
)
from magnetar.broker.cluster.ownership.view import View
from magnetar.broker.cluster.place import Place
from magnetar.metadata.store import MUST_NOT_EXIST, Put, Versioned

LOW, HIGH = bundles_of("t/n", 2)
PLACE = Place(Node(1))


def rows(*puts: Put) -> list[tuple[str, Versioned]]:
    return [(put.path, Versioned(put.value, 0)) for put in puts]


def test_a_record_and_a_wish_are_read_as_they_were_written() -> None:
    (row,) = rows(put_record(LOW, "b1", 7))
    assert Record.read(*row) == Record(LOW, "b1", 7, 0)
    wish = Wish(HIGH, 7, "b2", 0xC0000000)
    (row,) = rows(wish.put())
    assert Wish.read(*row) == wish


def test_paths_and_values_are_as_they_are_documented() -> None:
    assert put_record(LOW, "b7", 12, 3) == Put(
        "/cluster/bundles/t/n/0x00000000_0x80000000", b'{"v": 1, "owner": "b7", "generation": 12}', 3
    )
    assert Wish(LOW, 12, "b8").put() == Put(
        "/cluster/wishes/t/n/0x00000000_0x80000000",
        b'{"v": 1, "generation": 12, "to": "b8", "split": 0}',
        MUST_NOT_EXIST,
    )


def test_a_brokers_path_has_its_node_and_its_addresses() -> None:
    place = Place(
        Node(3, "r1", {"PLAINTEXT": Endpoint("b3.example", 9092)}),
        {"pulsar": Endpoint("b3.example", 6650), "http": Endpoint("b3.example", 8080)},
        {"external": {"pulsar": ("far.example", 7650)}},
    )
    assert json.loads(place.encode()) == {
        "v": 1,
        "node": 3,
        "rack": "r1",
        "kafka": {"PLAINTEXT": ["b3.example", 9092]},
        "addresses": {"pulsar": ["b3.example", 6650], "http": ["b3.example", 8080]},
        "listeners": {"external": {"pulsar": ["far.example", 7650]}},
    }
    assert Place.read(place.encode()) == place
    assert place.pulsar.of("") == {"pulsar": Endpoint("b3.example", 6650)}
    assert place.pulsar.of("external") == {"pulsar": Endpoint("far.example", 7650)}


def test_a_new_namespace_has_bundles_that_no_broker_has_owned() -> None:
    view = View()
    view.replace(rows(*first_records("t/n", 2)))
    assert list(view.records.values()) == [Record(LOW, "", 0, 0), Record(HIGH, "", 0, 0)]


def test_a_position_is_found_in_its_own_namespace() -> None:
    view = View()
    view.replace(rows(*first_records("t/n", 2), *first_records("t/m", 1)))
    for position, bundle in ((0, LOW), (LOW.high - 1, LOW), (LOW.high, HIGH), (LAST, HIGH)):
        assert view.find("t/n", position) == view.records[bundle]
    found = view.find("t/m", HIGH.low)
    assert found is not None
    assert found.bundle.namespace == "t/m"
    assert view.find("t/other", 0) is None


def test_a_range_that_is_gone_is_not_found_until_its_parts_are_there() -> None:
    view = View()
    view.replace(rows(*first_records("t/n", 2)))
    view.learn(record_path(HIGH), None)
    assert view.find("t/n", HIGH.low) is None
    assert view.find("t/n", 0) == view.records[LOW]
    for part in HIGH.split(HIGH.middle):
        view.learn(record_path(part), Versioned(put_record(part, "b1", 3).value, 0))
        assert view.find("t/n", part.low) == view.records[part]


def test_a_change_that_a_read_has_overtaken_changes_nothing() -> None:
    """The store may report what a scan has seen already; an owner must not serve an old generation again."""
    view = View()
    path = record_path(LOW)
    view.replace([(path, Versioned(put_record(LOW, "b2", 4).value, 6))])
    view.learn(path, Versioned(put_record(LOW, "b1", 3).value, 5))
    view.learn(path, Versioned(put_record(LOW, "", 4).value, 5))
    assert view.records[LOW] == Record(LOW, "b2", 4, 6)
    view.learn(path, Versioned(put_record(LOW, "", 4).value, 7))
    assert view.records[LOW] == Record(LOW, "", 4, 7)


def test_a_namespace_that_is_made_again_begins_again() -> None:
    view = View()
    path = record_path(LOW)
    view.replace([(path, Versioned(put_record(LOW, "b2", 4).value, 6))])
    view.learn(path, None)
    view.learn(path, Versioned(put_record(LOW, "", 0).value, 0))
    assert view.records[LOW] == Record(LOW, "", 0, 0)


def test_changes_say_which_bundle_they_are_about() -> None:
    view = View()
    wish = Wish(LOW, 0)
    assert view.learn(wish.path, Versioned(wish.put().value, 0)) == LOW
    assert view.learn(record_path(LOW), None) == LOW
    assert view.learn(f"{BROKERS}b1", Versioned(PLACE.encode(), 0)) is None
    assert (view.alive, view.places) == ({"b1"}, {"b1": PLACE})
    view.learn(f"{BROKERS}b1", None)
    assert (view.alive, view.places) == (set(), {})


def test_only_a_wish_of_the_records_generation_counts() -> None:
    view = View()
    wish = Wish(LOW, 3, "b2")
    view.learn(wish.path, Versioned(wish.put().value, 0))
    assert view.wish_for(Record(LOW, "b1", 3, 5)) == wish
    assert view.wish_for(Record(LOW, "b1", 4, 6)) is None
    view.learn(wish.path, None)
    assert view.wish_for(Record(LOW, "b1", 3, 5)) is None


def test_what_a_scan_did_not_find_is_forgotten() -> None:
    view = View()
    view.replace(
        [*rows(*first_records("t/n", 2), Wish(LOW, 0).put()), (f"{BROKERS}b1", Versioned(PLACE.encode(), 0))]
    )
    view.replace([])
    assert (view.alive, view.records, view.wishes, view.find("t/n", 0)) == (set(), {}, {}, None)
    assert view.places == {}


def test_a_load_is_known_until_another_one_is_said_also_when_its_broker_has_gone() -> None:
    view = View()
    view.replace(rows(*first_records("t/n", 2)))
    said = put_loads("b1", {LOW: 2.5, HIGH: 0.0})
    assert json.loads(said.value) == {
        "v": 1,
        "loads": {"t/n/0x00000000_0x80000000": 2.5, "t/n/0x80000000_0xffffffff": 0.0},
    }
    assert said.ephemeral
    assert view.learn(said.path, Versioned(said.value, 0)) is None
    assert view.loads == {LOW: 2.5, HIGH: 0.0}
    view.learn(said.path, None)
    assert view.loads == {LOW: 2.5, HIGH: 0.0}
    again = put_loads("b2", {LOW: 1.0})
    view.learn(again.path, Versioned(again.value, 4))
    assert view.loads == {LOW: 1.0, HIGH: 0.0}
    view.learn(record_path(LOW), None)
    assert view.loads == {HIGH: 0.0}


def test_the_first_of_those_alive_leads() -> None:
    view = View()
    assert view.leader is None
    view.alive |= {"b2", "b10", "b3"}
    assert view.leader == "b10"
