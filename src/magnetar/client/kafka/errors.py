"""What can go wrong for a client of a Kafka cluster; every text is a sentence for the person who runs the job."""

from magnetar.client.errors import ClientError
from magnetar.wire.kafka.error_codes import ErrorCode


class KafkaClientError(ClientError):
    """Base of the others."""


class ConnectionLost(KafkaClientError):
    """A broker cannot be reached, or went away in the middle of something: it may be tried again."""


class NotInTime(KafkaClientError):
    """The cluster did not do it within the time that was allowed."""


class UnknownTopic(KafkaClientError):
    """There is no such topic or partition, and the cluster does not make it by itself."""


class Refused(KafkaClientError):
    """The broker answered an error that trying again does not change."""

    def __init__(self, what: str, code: ErrorCode, detail: str | None = None) -> None:
        super().__init__(f"{what}: the broker answers {code.name}{f' ({detail})' if detail else ''}")
        self.code = code


class Fenced(Refused):
    """The producer's transaction is not its own any more: a newer producer has the id, or it lasted too long."""
