"""Why the broker refuses a producer, or its message."""

from typing import ClassVar

from magnetar.base.errors import BrokerError


class ProducerBusy(BrokerError):
    """The producer's name is in use, or another producer has exclusive access to the topic."""

    code: ClassVar[str] = "PRODUCER_BUSY"


class ProducerFenced(BrokerError):
    """Another producer has taken over exclusive access to the topic."""

    code: ClassVar[str] = "PRODUCER_FENCED"


class TooManyProducers(BrokerError):
    """The policy allows no more producers."""

    code: ClassVar[str] = "TOO_MANY_PRODUCERS"


class EncryptionRequired(BrokerError):
    """The policy requires producers to encrypt messages."""

    code: ClassVar[str] = "ENCRYPTION_REQUIRED"


class ProducerIdInUse(BrokerError):
    """The connection has another producer with this id."""

    code: ClassVar[str] = "PRODUCER_ID_IN_USE"
