"""What the handlers of the group APIs share."""

from typing import TYPE_CHECKING, Final

from magnetar.base.names import InvalidTopicName, TopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.wire.kafka.error_codes import ErrorCode

if TYPE_CHECKING:
    from magnetar.protocols.kafka.registry import RequestContext

GROUP_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in GroupError}


def is_coordinator(context: "RequestContext", group_id: str) -> bool:
    """Whether the node that was asked is the one that FindCoordinator names for the group."""
    nodes = context.broker.nodes
    return len(nodes) == 1 or nodes.coordinator_of(group_id) is context.node


def full_name(context: "RequestContext", kafka_name: str) -> str | None:
    """The full name of the topic that a client means; None when no topic can have that name."""
    try:
        return context.broker.topic_name(kafka_name).full
    except InvalidTopicName:
        return None


def shown_name(context: "RequestContext", full: str) -> str:
    """What a client is shown for a topic's full name."""
    return context.broker.kafka_name(TopicName.parse(full))
