"""The names of the topics of a namespace, in pieces, as they are when each piece is taken.

Between two pieces topics may be made, grown and deleted.  A topic that exists all the while is in one list exactly
once; a topic that comes or goes meanwhile may be in it.  A piece never has a topic that is deleted when the piece is
taken.  So a reader that also observes changes (`observers.py`) knows all topics at the end.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from magnetar.base.lane import TEXTS_PER_PIECE
from magnetar.base.names import PARTITION_SEPARATOR
from magnetar.broker.topics.topic import Topic

TOPICS_PER_PIECE: Final = 2_000  # to look at, which takes less than to list
PIECE_S: Final = 0.001  # a client's pattern may take as long for a single name

IsListed = Callable[[Topic], bool]


def pieces(
    topics: Iterable[Topic], is_listed: IsListed, monotonic: Callable[[], float], *, whole: bool = False
) -> Iterator[list[str]]:
    """The full names of all that holds messages: topics, or their partitions; `whole`: of topics alone.

    `is_listed` is asked anew for each piece of a topic with very many partitions.
    """
    names: list[str] = []
    looked_at = 0
    over_s = monotonic() + PIECE_S
    for topic in topics:
        begin = 0
        while not topic.is_deleted and is_listed(topic):
            full = topic.resource.name  # it is there; `name.full` is made each time
            if whole or not topic.is_partitioned:
                names.append(full)
                break
            end = min(begin + TEXTS_PER_PIECE - len(names), topic.partition_count)
            names += [f"{full}{PARTITION_SEPARATOR}{index}" for index in range(begin, end)]
            begin = end
            if begin >= topic.partition_count:
                break
            yield names
            names, looked_at, over_s = [], 0, monotonic() + PIECE_S
        looked_at += 1
        if looked_at >= TOPICS_PER_PIECE or len(names) >= TEXTS_PER_PIECE or monotonic() >= over_s:
            yield names
            names, looked_at, over_s = [], 0, monotonic() + PIECE_S
    if names:
        yield names
