"""The server as `magnetar sql` sees it: its topics and their schemas."""

from types import TracebackType
from typing import Final, Self

from magnetar.base.errors import ConfigError
from magnetar.client.errors import ClientError, NotFound, Unreachable
from magnetar.client.login import Server
from magnetar.client.rest import RestClient
from magnetar.pipelines.connector.options import source_options
from magnetar.pipelines.sql.names import Topic
from magnetar.pipelines.values.topic_schema import TopicSchema

_PATIENCE_S: Final = 5.0  # a user is waiting


class ServerTopics:
    """Asks the server for topics and schemas.

    Raises:
        ConfigError: its address is invalid, its context cannot be used, or no server answers there.
        ClientError: the program that answers is no Magnetar server, or refuses.
    """

    def __init__(self, server: Server) -> None:
        try:
            self._client: Final = RestClient(server.url, retry_s=_PATIENCE_S, login=server.login())
        except ClientError as error:
            raise ConfigError(f"--url: {error}") from None
        self.url: Final = self._client.http.url
        self.options: Final = source_options(Server(self.url, server.context))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def topics(self) -> list[Topic]:
        """All topics that this user can read."""
        try:
            return [Topic(one.topic, one.full, one.partitions) for one in self._client.topics()]
        except Unreachable:
            raise ConfigError(
                f"no server answers at {self.url}: start one with `magnetar standalone`, or say with --url where it is"
            ) from None

    def schema(self, topic: str) -> TopicSchema | None:
        """The newest schema of a topic; None if it has none."""
        try:
            found = self._client.schema(topic)
        except NotFound:
            return None
        return TopicSchema(found.type, found.schema, found.properties, found.version)
