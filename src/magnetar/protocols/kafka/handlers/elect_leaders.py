"""ElectLeaders: make preferred replicas leaders (KIP-183, KIP-460).

Served: v0-2.  The preferred replica of a partition always leads it, so there is never anything to elect.  The answer
for an existing partition is ELECTION_NOT_NEEDED, and for "all partitions" an empty list, as Kafka's is then.
"""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.protocols.kafka.context import RequestContext
from magnetar.protocols.kafka.errors import error_code
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages import elect_leaders as codec
from magnetar.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

VERSIONS = (0, 2)

_ELECTION_TYPES: Final = (0, 1)  # preferred, unclean


def handle(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    wanted = request.topic_partitions or []
    partitions = [(topic.topic, index) for topic in wanted for index in topic.partitions]
    outcomes: dict[tuple[str, int], tuple[ErrorCode, str]]
    response = ElectLeadersResponse()
    try:
        elected = context.cases.nodes.elect_leaders(context.caller, partitions)
    except BrokerError as refusal:
        response.error_code = error_code(refusal)
        outcomes = dict.fromkeys(partitions, (response.error_code, str(refusal)))
    else:
        if request.election_type in _ELECTION_TYPES:
            outcomes = {one: _outcome(error) for one, error in elected.items()}
        else:
            response.error_code = ErrorCode.INVALID_REQUEST
            message = f"Unknown election type {request.election_type}"
            outcomes = dict.fromkeys(partitions, (ErrorCode.INVALID_REQUEST, message))
    response.replica_election_results = [
        ReplicaElectionResult(
            topic.topic, [PartitionResult(index, *outcomes[topic.topic, index]) for index in topic.partitions]
        )
        for topic in wanted
    ]
    return response


def _outcome(error: BrokerError | None) -> tuple[ErrorCode, str]:
    if error is None:
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    return error_code(error), str(error)


API = Api.of(codec, VERSIONS, handle)
