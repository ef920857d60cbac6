"""Why the server refuses a share consumer's request."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class ShareSessionNotFound(BrokerError):
    """The consumer has no session, or no longer has it: it begins another one."""

    code: ClassVar[str] = "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpoch(BrokerError):
    """A request of the session was lost, or came twice."""

    code: ClassVar[str] = "INVALID_SHARE_SESSION_EPOCH"


class ShareSessionLimitReached(BrokerError):
    """Too many share consumers fetch already."""

    code: ClassVar[str] = "SHARE_SESSION_LIMIT_REACHED"


class InvalidShareRequest(BrokerError):
    """The request contradicts itself, or the protocol."""

    code: ClassVar[str] = "INVALID_SHARE_REQUEST"


class InvalidRecordState(BrokerError):
    """The consumer does not hold all of the records that it acknowledges, or their locks have ended."""

    code: ClassVar[str] = "INVALID_RECORD_STATE"
