"""What a share consumer's request can be refused for."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class ShareSessionNotFound(BrokerError):
    """The consumer has no session, or has it no more: it begins another one."""

    code: ClassVar[str] = "SHARE_SESSION_NOT_FOUND"


class InvalidShareSessionEpoch(BrokerError):
    """A request of the session was lost, or came twice."""

    code: ClassVar[str] = "INVALID_SHARE_SESSION_EPOCH"


class ShareSessionLimitReached(BrokerError):
    """So many share consumers fetch already that this one cannot now."""

    code: ClassVar[str] = "SHARE_SESSION_LIMIT_REACHED"


class InvalidShareRequest(BrokerError):
    """It makes no sense."""

    code: ClassVar[str] = "INVALID_SHARE_REQUEST"


class InvalidRecordState(BrokerError):
    """The consumer does not have all of the records that it speaks of, or their time was over."""

    code: ClassVar[str] = "INVALID_RECORD_STATE"
