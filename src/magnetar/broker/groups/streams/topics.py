"""What the existing topics mean for a topology.  They decide how many partitions its internal topics must have and how
many tasks each subtopology has.  They also show which topics are missing, and which have a wrong number of partitions.

A pure function of the topology and of the partitions of each topic.  The rules are those of Apache Kafka's coordinator:

* a source topic must exist;
* a repartition topic has the number that the topology asks for, or as many partitions as the largest input of a
  subtopology that writes it;
* topics that must be copartitioned have the same number: that of the sources among them or, if there are none, the
  largest of the repartition topics;
* a changelog has as many partitions as its subtopology has tasks, and these are as many as the largest input has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple, NoReturn

from magnetar.broker.groups.model import InternalTopic, StreamsStatus, Subtopology, Topology

_SHOWN_MAX: Final = 3  # names in a sentence

CountOf = Callable[[str], int | None]


class InvalidTopology(Exception):
    """The topology is invalid, whatever topics exist; the text is for the client."""


class Configured(NamedTuple):
    """`tasks` is by subtopology; `partitions` has the internal topics.  Both are empty if a problem
    prevents that they are computed.  The caller must create the topics in `missing`.
    """

    tasks: Mapping[str, int]
    partitions: Mapping[str, int]
    missing: tuple[InternalTopic, ...] = ()
    problem: tuple[StreamsStatus, str] | None = None

    @property
    def is_ready(self) -> bool:
        return self.problem is None


class _Problem(Exception):
    def __init__(self, status: StreamsStatus, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


def configured(topology: Topology, count_of: CountOf) -> Configured:
    """`count_of` returns a topic's number of partitions; None if the topic does not exist.

    Raises:
        InvalidTopology
    """
    try:
        return _configured(topology, count_of)
    except _Problem as problem:
        return Configured({}, {}, problem=(problem.status, problem.text))


def decided(topology: Topology, partitions: Mapping[str, int]) -> Topology:
    """The topology with these numbers of partitions for its internal topics."""

    def counted(topics: Iterable[InternalTopic]) -> tuple[InternalTopic, ...]:
        return tuple(replace(one, partitions=partitions.get(one.name, one.partitions)) for one in topics)

    parts = (
        replace(part, repartitions=counted(part.repartitions), changelogs=counted(part.changelogs))
        for part in topology.subtopologies
    )
    return replace(topology, subtopologies=tuple(parts))


def summary(names: Iterable[str]) -> str:
    """Names for a sentence: of many names only the first few."""
    all_names = sorted(names)
    shown = ", ".join(all_names[:_SHOWN_MAX])
    more = len(all_names) - _SHOWN_MAX
    return f"{shown} and {more} additional topics" if more > 0 else shown


def _configured(topology: Topology, count_of: CountOf) -> Configured:
    parts = topology.subtopologies
    absent = {name for part in parts for name in part.sources if count_of(name) is None}
    if absent:
        raise _Problem(StreamsStatus.MISSING_SOURCE_TOPICS, f"Source topics {summary(absent)} are missing.")
    partitions = _repartitioned(parts, count_of)

    def count(name: str) -> int:
        found = count_of(name)
        return partitions[name] if found is None else found

    for part in parts:
        for names in _copartitioned(part):
            partitions.update(_enforced(names, parts, count))
    tasks: dict[str, int] = {}
    for part in parts:
        if not part.inputs:
            raise InvalidTopology(f"No source topics found for subtopology {part.subtopology_id}")
        tasks[part.subtopology_id] = max(map(count, part.inputs))
        partitions.update(dict.fromkeys((one.name for one in part.changelogs), tasks[part.subtopology_id]))
    return Configured(tasks, partitions, *_missing(parts, partitions, count_of))


def _repartitioned(parts: tuple[Subtopology, ...], count_of: CountOf) -> dict[str, int]:
    """The partitions of all repartition topics, as far as copartitioning does not change them.

    The topics that a subtopology writes may depend on those that it reads, so this repeats until all are known.
    """
    topics = {topic.name: topic for part in parts for topic in part.repartitions}
    partitions = {name: topic.partitions for name, topic in topics.items() if topic.partitions}
    unknown = {sink: None for part in parts for sink in part.sinks if sink not in partitions}
    while unknown:
        found: dict[str, int] = {}
        for part in parts:
            counts = [partitions.get(topic.name) for topic in part.repartitions]
            counts += map(count_of, part.sources)
            known = [count for count in counts if count is not None]
            if known:
                for sink in part.sinks:
                    if sink in unknown and sink not in found:
                        found[sink] = max(known)
        if not found:
            raise InvalidTopology(
                "Failed to compute number of partitions for all repartition topics."
                " There may be loops in the topology that cannot be resolved."
            )
        partitions |= found
        unknown = {sink: None for sink in unknown if sink not in found}
    if not topics.keys() <= partitions.keys():
        raise InvalidTopology(
            "Failed to compute number of partitions for all repartition topics,"
            " because a repartition source topic is never used as a sink topic."
        )
    return partitions


def _copartitioned(part: Subtopology) -> Iterator[set[str]]:
    for group in part.copartitioned:
        sources, repartitions = range(len(part.sources)), range(len(part.repartitions))
        if not set(group.sources) <= set(sources) or not set(group.repartitions) <= set(repartitions):
            raise InvalidTopology(
                f"A copartition group of subtopology {part.subtopology_id} names a topic that is not there."
            )
        yield {part.sources[one] for one in group.sources} | {
            part.repartitions[one].name for one in group.repartitions
        }


def _enforced(names: set[str], parts: tuple[Subtopology, ...], count: Callable[[str], int]) -> dict[str, int]:
    """The numbers of partitions that the repartition topics among `names` must have."""
    topics = {topic.name: topic for part in parts for topic in part.repartitions if topic.name in names}
    external = {name: count(name) for name in sorted(names - topics.keys())}
    fixed = {name: count(name) for name, topic in sorted(topics.items()) if topic.partitions}
    decisive = external or fixed
    if len(set(decisive.values())) > 1:
        listed = ", ".join(f"{name}={number}" for name, number in decisive.items())
        _incorrect(f"Following topics do not have the same number of partitions: [{{{listed}}}]")
    wanted = next(iter(decisive.values())) if decisive else max(map(count, topics), default=0)
    for name, number in fixed.items():
        if number != wanted:
            _incorrect(
                f"Number of partitions [{number}] of repartition topic [{name}] doesn't match number of partitions"
                f" [{wanted}] of the source topic."
            )
    return dict.fromkeys(topics, wanted)


def _incorrect(text: str) -> NoReturn:
    raise _Problem(StreamsStatus.INCORRECTLY_PARTITIONED_TOPICS, text)


def _missing(
    parts: tuple[Subtopology, ...], partitions: Mapping[str, int], count_of: CountOf
) -> tuple[tuple[InternalTopic, ...], tuple[StreamsStatus, str] | None]:
    missing: dict[str, InternalTopic] = {}
    for topic in (one for part in parts for one in part.internal_topics):
        wanted, found = partitions[topic.name], count_of(topic.name)
        if found is None:
            missing[topic.name] = replace(topic, partitions=wanted)
        elif found != wanted:
            _incorrect(
                f"Existing topic {topic.name} has different number of partitions: expected {wanted}, found {found}"
            )
    if not missing:
        return (), None
    text = f"Internal topics are missing: {summary(missing)}"
    return tuple(missing.values()), (StreamsStatus.MISSING_INTERNAL_TOPICS, text)
