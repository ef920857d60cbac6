"""What the topics that there are make of a topology; the sentences are those of Apache Kafka 4.3.1's coordinator."""

from dataclasses import replace

import pytest

from magnetar.broker.groups.model import Copartitioned, InternalTopic, StreamsStatus, Subtopology, Topology
from magnetar.broker.groups.streams.stored import decoded, encoded
from magnetar.broker.groups.streams.topics import Configured, InvalidTopology, configured, decided, summary

CHANGELOG = InternalTopic("changelog", configs=(("cleanup.policy", "compact"),))
# `in` is moved to its keys by `moved`, and counted with a store.
COUNTING = Topology(
    0,
    (
        Subtopology("0", sources=("in",), sinks=("moved",)),
        Subtopology("1", repartitions=(InternalTopic("moved"),), changelogs=(CHANGELOG,)),
    ),
)


def found(topology: Topology, **partitions: int) -> Configured:
    return configured(topology, partitions.get)


def problem(topology: Topology, **partitions: int) -> tuple[StreamsStatus, str] | None:
    return found(topology, **partitions).problem


def joined(*names: str, repartitions: tuple[InternalTopic, ...] = ()) -> Topology:
    """Sources and repartition topics that must be copartitioned; another subtopology writes the latter."""
    copartitioned = Copartitioned(tuple(range(len(names))), tuple(range(len(repartitions))))
    return Topology(
        0,
        (
            Subtopology("0", ("in",), sinks=tuple(topic.name for topic in repartitions)),
            Subtopology("1", names, repartitions=repartitions, copartitioned=(copartitioned,)),
        ),
    )


def test_internal_topics_have_as_many_partitions_as_what_they_are_made_of() -> None:
    answer = found(COUNTING, **{"in": 3})
    assert answer.tasks == {"0": 3, "1": 3}
    assert {topic.name: topic.partitions for topic in answer.missing} == {"moved": 3, "changelog": 3}
    assert answer.missing[1].configs == (("cleanup.policy", "compact"),)
    assert not answer.is_ready
    assert answer.problem == (
        StreamsStatus.MISSING_INTERNAL_TOPICS,
        "Internal topics are missing: changelog, moved",
    )


def test_a_topology_is_ready_when_all_its_topics_are_there() -> None:
    answer = found(COUNTING, changelog=3, moved=3, **{"in": 3})
    assert answer.is_ready
    assert answer.missing == ()
    assert [part.internal_topics for part in decided(COUNTING, answer.partitions).subtopologies] == [
        (),
        (InternalTopic("moved", 3), replace(CHANGELOG, partitions=3)),
    ]


def test_missing_sources_are_told_before_anything_is_created() -> None:
    wide = Topology(0, (Subtopology("0", tuple("fedcba"), changelogs=(CHANGELOG,)),))
    answer = found(wide, e=1)
    assert answer.problem == (
        StreamsStatus.MISSING_SOURCE_TOPICS,
        "Source topics a, b, c and 2 additional topics are missing.",
    )
    assert (answer.tasks, answer.missing) == ({}, ())


def test_a_repartition_topic_may_ask_for_its_number_of_partitions() -> None:
    asked = replace(
        COUNTING,
        subtopologies=(
            COUNTING.subtopologies[0],
            replace(COUNTING.subtopologies[1], repartitions=(InternalTopic("moved", 7),)),
        ),
    )
    assert found(asked, **{"in": 3}).tasks == {"0": 3, "1": 7}


def test_numbers_go_on_from_one_repartition_topic_to_the_next_in_whichever_order() -> None:
    chain = (
        Subtopology("0", ("in",), sinks=("one",)),
        Subtopology("1", repartitions=(InternalTopic("one"),), sinks=("two",)),
        Subtopology("2", repartitions=(InternalTopic("two"),)),
    )
    for parts in (chain, chain[::-1]):
        assert found(Topology(0, parts), **{"in": 5}).partitions == {"one": 5, "two": 5}


def test_an_internal_topic_with_other_partitions_is_no_use() -> None:
    assert problem(COUNTING, changelog=2, moved=3, **{"in": 3}) == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic changelog has different number of partitions: expected 3, found 2",
    )


def test_sources_that_are_joined_must_have_the_same_number_of_partitions() -> None:
    assert problem(joined("a", "b"), a=2, b=2, **{"in": 1}) is None
    assert problem(joined("a", "b"), a=2, b=3, **{"in": 1}) == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Following topics do not have the same number of partitions: [{a=2, b=3}]",
    )


def test_a_repartition_topic_follows_the_source_that_it_is_joined_with() -> None:
    answer = found(joined("a", repartitions=(InternalTopic("moved"),)), a=4, **{"in": 2})
    assert answer.partitions == {"moved": 4}
    assert answer.tasks == {"0": 2, "1": 4}


def test_a_repartition_topic_with_its_own_number_must_fit_the_source_that_it_is_joined_with() -> None:
    assert problem(joined("a", repartitions=(InternalTopic("moved", 3),)), a=4, **{"in": 2}) == (
        StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS,
        "Number of partitions [3] of repartition topic [moved] doesn't match number of partitions [4] of the source"
        " topic.",
    )


def test_repartition_topics_that_are_joined_have_the_number_that_one_asks_for_or_the_largest() -> None:
    both = (InternalTopic("one", 6), InternalTopic("two"))
    assert found(joined(repartitions=both), **{"in": 2}).partitions == {"one": 6, "two": 6}
    parts = (
        Subtopology("0", ("a",), sinks=("one",)),
        Subtopology("1", ("b",), sinks=("two",)),
        Subtopology(
            "2",
            repartitions=(InternalTopic("one"), InternalTopic("two")),
            copartitioned=(Copartitioned((), (0, 1)),),
        ),
    )
    assert found(Topology(0, parts), a=2, b=5).partitions == {"one": 5, "two": 5}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (
            (Subtopology("0", ("in",)), Subtopology("1", repartitions=(InternalTopic("nobodys"),))),
            "a repartition source topic is never used as a sink topic",
        ),
        (
            (
                Subtopology("0", repartitions=(InternalTopic("one"),), sinks=("two",)),
                Subtopology("1", repartitions=(InternalTopic("two"),), sinks=("one",)),
            ),
            "There may be loops in the topology that cannot be resolved",
        ),
        ((Subtopology("0"),), "No source topics found for subtopology 0"),
        ((Subtopology("0", ("in",), copartitioned=(Copartitioned((1,), ()),)),), "a topic that is not there"),
        (
            (Subtopology("0", ("in",), copartitioned=(Copartitioned((-1,), ()),)),),
            "a topic that is not there",
        ),
    ],
)
def test_a_topology_that_makes_no_sense_is_refused(parts: tuple[Subtopology, ...], text: str) -> None:
    with pytest.raises(InvalidTopology, match=text):
        found(Topology(0, parts), **{"in": 3})


def test_a_summary_names_the_first_few() -> None:
    assert summary(["b", "a"]) == "a, b"
    assert summary("edcba") == "a, b, c and 2 additional topics"


def test_a_stored_topology_is_read_as_it_was() -> None:
    topology = replace(joined("a", repartitions=(replace(CHANGELOG, partitions=3),)), epoch=4)
    assert decoded(encoded(topology)) == topology
    assert decoded(encoded(COUNTING)) == COUNTING


def test_the_stored_form_of_a_topology_does_not_change() -> None:
    value = (
        b'{"v": 1, "epoch": 0, "subtopologies": [{"id": "0", "sources": ["in"], "sinks": ["moved"], "repartitions": [],'
        b' "changelogs": [], "copartitioned": []}, {"id": "1", "sources": [], "sinks": [], "repartitions": [["moved",'
        b' 0, 0, []]], "changelogs": [["changelog", 0, 0, [["cleanup.policy", "compact"]]]], "copartitioned": []}]}'
    )
    assert encoded(COUNTING) == value
    assert decoded(value) == COUNTING


@pytest.mark.parametrize("value", [b"", b"{}", b'{"v": 2}', b'{"v": 1, "epoch": 0, "subtopologies": [1]}'])
def test_a_damaged_topology_is_noticed(value: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        decoded(value)
