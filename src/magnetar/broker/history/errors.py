"""The errors of requests for stored records."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class NonPersistent(BrokerError):
    """The topic stores no messages."""

    code: ClassVar[str] = "NON_PERSISTENT"
