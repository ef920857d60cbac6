"""How fast the records of a backlog arrive in a topic, whoever carries them there, and what that costs.

What is counted is what the topic has, from the moment on when a fifth of the backlog is there: no process pays for its
start, and a JVM has compiled what it runs often.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.process import RunFailed

BEGIN_SHARE = 0.2
BEGIN_SHARE_MAX = 0.6  # with more than that there is too little left to count
POLL_SECONDS = 0.05
START_SECONDS_MAX = 600.0  # a start of Spark on a busy machine takes minutes
STALLED_SECONDS_MAX = 180.0
REQUEST_SECONDS = 30.0

Costs = Callable[[], Mapping[str, float]]
"""What was spent so far, such as CPU seconds, by name."""


@dataclass(frozen=True)
class Arrivals:
    """Records that have arrived within `seconds`; `spent` has what each of the costs has grown by."""

    records: int
    seconds: float
    spent: Mapping[str, float]


@dataclass(frozen=True)
class _Mark:
    records: int
    at: float
    costs: Mapping[str, float]


def watch(
    arrived: Callable[[], int],
    count: int,
    costs: Costs,
    alive: Callable[[], bool],
    *,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Arrivals:
    """Return when all `count` records have arrived; `arrived` says how many have, `alive` whether their carrier runs.

    RunFailed when no more come, when more come than there are, and when most of them are there from the beginning.
    """
    begin: _Mark | None = None
    last, moved = -1, monotonic()
    while True:
        there, now = arrived(), monotonic()
        if there > count:
            raise RunFailed(f"{there} records have arrived, and there are {count}")
        if begin is None and there >= count * BEGIN_SHARE:
            if there > count * BEGIN_SHARE_MAX:
                raise RunFailed(f"{there} of {count} records had arrived before they could be counted")
            begin = _Mark(there, now, costs())
        if begin is not None and there == count:
            spent = {name: value - begin.costs[name] for name, value in costs().items()}
            return Arrivals(there - begin.records, now - begin.at, spent)
        if there != last:
            last, moved = there, now
        elif now - moved > (STALLED_SECONDS_MAX if there else START_SECONDS_MAX) or not alive():
            raise RunFailed(f"{there} of {count} records have arrived, and no more")
        sleep(POLL_SECONDS)


def arrived_in(bootstrap: str, topic: str, partitions: int) -> Callable[[], int]:
    """How many records a topic of a server has that Kafka's clients can ask; it has all that it ever had.

    What is returned raises RunFailed.
    """
    client = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    end = OffsetSpec.latest()  # type: ignore[no-untyped-call]  # the library has no types for it
    wanted = {TopicPartition(topic, number): end for number in range(partitions)}

    def arrived() -> int:
        answers = client.list_offsets(wanted, request_timeout=REQUEST_SECONDS)
        try:
            return sum(int(answer.result(REQUEST_SECONDS).offset) for answer in answers.values())
        except KafkaException as error:
            raise RunFailed(f"the end of topic {topic} is not known: {error}") from error

    return arrived
