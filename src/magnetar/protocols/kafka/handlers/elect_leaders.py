"""ElectLeaders: let preferred replicas lead (KIP-183, KIP-460).

Served: v0-2.  The preferred replica of a partition always leads it, so there is never anything to elect: a partition
that exists is answered with ELECTION_NOT_NEEDED, and "all partitions" with an empty list, as Kafka does then.
"""

from typing import TYPE_CHECKING, Final

from magnetar.base.errors import BrokerError
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from magnetar.broker.broker import Broker
    from magnetar.protocols.kafka.registry import RequestContext

MESSAGE = "elect_leaders"
VERSIONS = (0, 2)

_ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


def handle(context: "RequestContext", request: ElectLeadersRequest) -> ElectLeadersResponse:
    response = ElectLeadersResponse()
    known_type = request.election_type in _ELECTION_TYPES
    if not known_type:
        response.error_code = ErrorCode.INVALID_REQUEST
    for wanted in request.topic_partitions or []:
        rows: list[PartitionResult] = []
        response.replica_election_results.append(ReplicaElectionResult(wanted.topic, rows))
        for index in wanted.partitions:
            code, message = ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
            if known_type:
                code, message = _elect(context.broker, wanted.topic, index)
            rows.append(PartitionResult(index, code, message))
    return response


def _elect(broker: "Broker", topic_name: str, index: int) -> tuple[ErrorCode, str]:
    try:
        topic = broker.kafka_topic(topic_name)
    except BrokerError:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}"
    if not 0 <= index < topic.partition_count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}"
    return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
