"""The errors of a client of a Kafka cluster; every text is a sentence for the user who runs the job."""

from magnetar.client.errors import ClientError
from magnetar.wire.kafka.error_codes import ErrorCode


class KafkaClientError(ClientError):
    """The base class of the others."""


class ConnectionLost(KafkaClientError):
    """A broker cannot be reached, or the connection broke during a request; the caller may try again."""


class NotInTime(KafkaClientError):
    """The cluster did not carry out the request within the allowed time."""


class UnknownTopic(KafkaClientError):
    """The topic or partition does not exist, and the cluster does not create it by itself."""


class Refused(KafkaClientError):
    """The broker answered with an error that another attempt would not change."""

    def __init__(self, what: str, code: ErrorCode, detail: str | None = None) -> None:
        super().__init__(f"{what}: the broker answers {code.name}{f' ({detail})' if detail else ''}")
        self.code = code


class Fenced(Refused):
    """The producer has lost its transaction: a newer producer has the id, or the transaction has timed out."""
