"""Checks that every heartbeat of the streams protocol must pass, whatever the state of its group (KIP-1071).

As Kafka 4.3, the server refuses static members, sources by regular expression, warm-up tasks, and reports of how far
tasks are.
"""

from magnetar.broker.groups.consumer.checks import IDS_BYTES_MAX, JOIN, LEAVE
from magnetar.broker.groups.consumer.group import LEFT_FOR_NOW
from magnetar.broker.groups.errors import GroupError
from magnetar.broker.groups.model import StreamsHeartbeat, Topology
from magnetar.broker.groups.streams.stored import encoded
from magnetar.metadata.store import VALUE_BYTES_MAX

Problem = tuple[GroupError, str]


def problem_of(request: StreamsHeartbeat) -> Problem | None:
    """The error of a heartbeat, and the sentence for its client; None if the heartbeat is valid."""
    invalid = _unsupported(request) or _invalid(request)
    if invalid is not None:
        return GroupError.INVALID_REQUEST, invalid
    if request.topology is not None:
        wrong = _wrong(request.topology)
        if wrong is not None:
            return GroupError.STREAMS_INVALID_TOPOLOGY, wrong
    return None


def _unsupported(request: StreamsHeartbeat) -> str | None:
    if request.instance_id is not None:
        return "Static membership is not yet supported."
    if request.has_offsets:
        return "TaskOffsets are not supported yet."
    if request.warmup:
        return "WarmupTasks are not supported yet."
    parts = request.topology.subtopologies if request.topology is not None else ()
    if any(part.source_patterns for part in parts):
        return "Regular expressions for source topics are not supported yet."
    return None


def _invalid(request: StreamsHeartbeat) -> str | None:
    named = {
        "member id": request.member_id,
        "group id": request.group_id,
        "rack id": request.rack_id,
        "process id": request.process_id,
    }
    for what, value in named.items():
        if value is not None and len(value) > IDS_BYTES_MAX:
            return f"The {what} is longer than {IDS_BYTES_MAX} letters."
        if value is not None and what != "process id" and not value.strip():
            return f"The {what} must not be empty."
    texts = [text for pair in request.tags or () for text in pair]
    texts += request.endpoint[:1] if request.endpoint is not None else []
    if sum(map(len, texts)) > IDS_BYTES_MAX:
        return f"The tags and the endpoint together are longer than {IDS_BYTES_MAX} letters."
    if request.epoch < LEFT_FOR_NOW:
        return "There is no such member epoch."
    if request.epoch == LEFT_FOR_NOW:
        return "A member without an instance id cannot leave for now."
    tasks = (request.active, request.standby, request.warmup)
    if request.epoch == JOIN:
        if request.rebalance_timeout_ms == -1:
            return "A member that joins must give its rebalance time-out."
        if any(tasks):
            return "A member that joins must not have tasks."
        if request.topology is None:
            return "A member that joins must give its topology."
    elif request.topology is not None:
        return "Only a member that joins can give its topology."
    if None in tasks and tasks != (None, None, None) and request.epoch != LEAVE:
        return "A member must say of all kinds of tasks which it has, or of none."
    return None


def _wrong(topology: Topology) -> str | None:
    ids = [part.subtopology_id for part in topology.subtopologies]
    if topology.epoch < 0:
        return "The epoch of a topology must not be negative."
    if len(set(ids)) < len(ids):
        return "Two subtopologies have the same id."
    for part in topology.subtopologies:
        for topic in part.changelogs:
            if topic.partitions:
                return (
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to"
                    f" {topic.partitions}."
                )
        if any(topic.partitions < 0 for topic in part.repartitions):
            return f"A repartition topic of subtopology {part.subtopology_id} has a negative partition count."
    if len(encoded(topology)) > VALUE_BYTES_MAX:
        return "The topology is larger than the server keeps."
    return None
