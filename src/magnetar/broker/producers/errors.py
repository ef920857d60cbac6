"""What a producer is refused for, or its message."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class ProducerBusy(BrokerError):
    """The producer's name is taken, or another producer has the topic for itself."""

    code: ClassVar[str] = "PRODUCER_BUSY"


class ProducerFenced(BrokerError):
    """Another producer has taken the topic over."""

    code: ClassVar[str] = "PRODUCER_FENCED"


class TooManyProducers(BrokerError):
    """The policy allows no more producers."""

    code: ClassVar[str] = "TOO_MANY_PRODUCERS"


class EncryptionRequired(BrokerError):
    """The policy wants messages to be encrypted by their producers."""

    code: ClassVar[str] = "ENCRYPTION_REQUIRED"


class ProducerIdInUse(BrokerError):
    """The connection has another producer of this id."""

    code: ClassVar[str] = "PRODUCER_ID_IN_USE"
