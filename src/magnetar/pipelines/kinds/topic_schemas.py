"""Where a kind gets the schemas of a topic from."""

from dataclasses import dataclass
from typing import Protocol

from magnetar.client.errors import NotFound
from magnetar.client.rest import RestClient
from magnetar.pipelines.values.topic_schema import TopicSchema


class Schemas(Protocol):
    """The source of schemas."""

    def newest(self, topic: str) -> TopicSchema | None: ...

    def version(self, topic: str, version: int) -> TopicSchema | None: ...


@dataclass(frozen=True, slots=True)
class ServerSchemas:
    """The schemas of the server.  Raises errors of `magnetar.client.errors`."""

    client: RestClient

    def newest(self, topic: str) -> TopicSchema | None:
        return self._get(topic, None)

    def version(self, topic: str, version: int) -> TopicSchema | None:
        return self._get(topic, version)

    def _get(self, topic: str, version: int | None) -> TopicSchema | None:
        try:
            found = self.client.schema(topic, version)
        except NotFound:
            return None
        return TopicSchema(found.type, found.schema, found.properties, found.version)
