"""A server with `--secure` and its worker: its users, their rights, and their pipelines."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from magnetar.client.login import Login, Server
from magnetar.client.pipelines import Pipeline, PipelinesClient
from magnetar.client.rest import RestClient
from magnetar.server.token_tool import make_token
from magnetar.testing.server import MagnetarProcess
from tests.integration.secure.test_secure import Safe, produce
from tests.spark.pipelines import PATIENCE_S, settings

CLUSTER = (ResourceType.BROKER, "kafka-cluster")


def topic(name: str) -> tuple[ResourceType, str]:
    return ResourceType.TOPIC, name


class Secured(Safe):
    """See the module's text.  Leave by `close`."""

    def __init__(
        self,
        data_dir: Path,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        **more: str,
    ) -> None:
        super().__init__(data_dir)
        self.server = MagnetarProcess(
            arguments=["--secure", *arguments],
            data_dir=data_dir,
            host=None,
            settings=settings(**more),
            environment=environment,
        )
        self.server.start()
        made = Server.of(str(self.folder / "context.toml"))
        self.url, self.ca = made.url, made.login().ca
        self.admin = AdminClient({**self.kafka()})
        self.rest = RestClient(self.url, login=made.login())
        self.clients: dict[str, PipelinesClient] = {}
        self.as_admin = self._client("admin", self.token)

    def close(self) -> None:
        for row in self.as_admin.all():
            self.as_admin.delete(row.name, force=True)
        for client in self.clients.values():
            client.close()
        self.rest.close()
        self.server.close()

    def token_of(self, user: str) -> str:
        return make_token(user, "", (self.folder / "token.key").as_uri(), None, "1h", [])

    def as_user(self, user: str) -> PipelinesClient:
        """What declares pipelines as a user."""
        return self.clients.get(user) or self._client(user, self.token_of(user))

    def _client(self, user: str, token: str) -> PipelinesClient:
        made = self.clients[user] = PipelinesClient(
            self.url, retry_s=60.0, login=Login(ca=self.ca, token=token)
        )
        return made

    # --- rights

    def allow(self, user: str, what: tuple[ResourceType, str], *operations: AclOperation) -> None:
        bindings = [self._binding(AclBinding, user, what, one) for one in operations]
        for done in self.admin.create_acls(bindings).values():
            done.result(20)

    def take(self, user: str, what: tuple[ResourceType, str], *operations: AclOperation) -> None:
        for one in operations:
            found = self.admin.delete_acls([self._binding(AclBindingFilter, user, what, one)])
            assert [len(done.result(20)) for done in found.values()] == [1]

    @staticmethod
    def _binding(kind: Any, user: str, what: tuple[ResourceType, str], operation: AclOperation) -> Any:
        literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
        return kind(*what, literal, f"User:{user}", "*", operation, allow)

    # --- topics

    def topics(self, *names: str) -> None:
        for done in self.admin.create_topics([NewTopic(name, 1) for name in names]).values():
            done.result(20)

    def write(self, name: str, *values: str) -> None:
        for value in values:
            produce(self.kafka(), name, value.encode())

    def count(self, name: str) -> int:
        """Records that are visible, and markers of transactions."""
        return self.rest.offsets([(name, 0, None)])[0].last_stable

    def values(self, name: str) -> list[str]:
        """What lies in a topic, as a reader of committed records finds it."""
        import confluent_kafka

        consumer = confluent_kafka.Consumer(
            {**self.kafka(), "group.id": "check", "enable.partition.eof": True, "enable.auto.commit": False}
        )
        consumer.assign([confluent_kafka.TopicPartition(name, 0, 0)])
        found: list[str] = []
        try:
            while (message := consumer.poll(20)) is not None:
                error = message.error()
                if error is not None:
                    assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
                    return found
                found.append((message.value() or b"").decode())
        finally:
            consumer.close()
        raise AssertionError(f"the end of {name} did not come")

    # --- pipelines

    def copy(self, user: str, name: str, source: str, sink: str, **more: str) -> None:
        """Declare one that copies a topic into another one."""
        config = {
            "source": {"subscribe": source, **more},
            "sql": "select key, value from source",
            "sink": {"topic": sink},
        }
        self.as_user(user).create(name, "query", config)

    def until(self, what: Callable[[], object]) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < give_up_at, (self.as_admin.all(), self.worker_log[-4000:])
            time.sleep(0.25)

    def until_failed(self, name: str) -> str:
        """Why it failed: by the row that says so, as it soon starts again, and then says nothing."""
        rows: list[Pipeline] = []

        def has_failed() -> bool:
            rows.append(self.as_admin.get(name))
            return rows[-1].state == "FAILED"

        self.until(has_failed)
        return rows[-1].reason

    @property
    def worker_log(self) -> str:
        return (self.server.data_dir / "pipelines" / "worker.log").read_text(errors="replace")
