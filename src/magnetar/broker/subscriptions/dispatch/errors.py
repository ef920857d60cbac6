"""Why a consumer may not join a subscription."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class ConsumerBusy(BrokerError):
    """The subscription has all the consumers that its type allows."""

    code: ClassVar[str] = "CONSUMER_BUSY"


class ConsumerAssignError(BrokerError):
    """The key ranges that a consumer declares are malformed, or another consumer has them."""

    code: ClassVar[str] = "CONSUMER_ASSIGN_ERROR"
