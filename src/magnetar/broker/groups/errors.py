"""The errors of requests to groups.

They are answers, not exceptions: the state machines never raise because of a client.  The names are those of Kafka's
protocol, the only one with groups; its door turns them into codes by name.
"""

from enum import Enum


class GroupError(Enum):
    """The value is a sentence for the client; NONE is success."""

    NONE = ""
    COORDINATOR_NOT_AVAILABLE = "The coordinator is not available."
    INVALID_GROUP_ID = "The group id is not valid."
    INVALID_SESSION_TIMEOUT = "The session timeout is outside of what the server allows."
    INCONSISTENT_GROUP_PROTOCOL = "No protocol of the member is supported by all members of the group."
    UNKNOWN_MEMBER_ID = "The group does not know this member."
    MEMBER_ID_REQUIRED = "The member has to join again with the member id that it was given."
    FENCED_INSTANCE_ID = "Another member has taken over this group instance id."
    GROUP_MAX_SIZE_REACHED = "The group has as many members as it may."
    MESSAGE_TOO_LARGE = "What the member says of itself, or is assigned, is larger than the server keeps."
    ILLEGAL_GENERATION = "The generation is not the group's current one."
    REBALANCE_IN_PROGRESS = "The group is rebalancing: join it again."
    GROUP_ID_NOT_FOUND = "There is no such group."
    NON_EMPTY_GROUP = "The group still has members."
    GROUP_SUBSCRIBED_TO_TOPIC = "The group still consumes this topic."
    OFFSET_METADATA_TOO_LARGE = "The metadata of an offset is larger than the server allows."
    UNKNOWN_TOPIC_OR_PARTITION = "There is no such topic or partition."
    UNKNOWN_TOPIC_ID = "There is no topic with this id."
    KAFKA_STORAGE_ERROR = "The offsets cannot be read or written now."
    INVALID_REQUEST = "The request is not valid."
    INVALID_REGULAR_EXPRESSION = "The regular expression is not valid."
    FENCED_MEMBER_EPOCH = (
        "The member's epoch is not the one that it was given: it has to give all up and join again."
    )
    STALE_MEMBER_EPOCH = "The member has got another epoch since."
    UNRELEASED_INSTANCE_ID = "Another member has this group instance id and has not left."
    UNSUPPORTED_ASSIGNOR = "The server has no such assignor."
    UNSUPPORTED_VERSION = "Members of the consumer protocol need a later version of this request."
    STREAMS_INVALID_TOPOLOGY = "The topology is not valid."
