"""What the handlers of the group APIs share."""

from typing import Final

from magnetar.base.errors import BrokerError
from magnetar.base.names import InvalidTopicName
from magnetar.broker.groups.errors import GroupError
from magnetar.protocols.kafka.errors import error_code
from magnetar.wire.kafka.error_codes import ErrorCode

GROUP_ERROR_CODES: Final = {error: ErrorCode[error.name] for error in GroupError}


def topic_code(found: str | BrokerError) -> ErrorCode:
    """For each partition of a topic whose offsets are asked for: NONE for a topic, or why it is refused."""
    if isinstance(found, str):
        return ErrorCode.NONE
    # A name that no topic can have is one that no topic has, says Kafka here.
    if isinstance(found, InvalidTopicName):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error_code(found)
