"""What can be wrong with a wish for stored records."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class NonPersistent(BrokerError):
    """The topic stores nothing that could be read."""

    code: ClassVar[str] = "NON_PERSISTENT"
