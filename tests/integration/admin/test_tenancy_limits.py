"""`maxTenants` and `maxNamespacesPerTenant`, as pulsar-admin and a Kafka client meet them."""

from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from magnetar.testing.server import MagnetarProcess
from tests.integration.http_answers import ask
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]


@pytest.fixture
def server() -> Iterator[MagnetarProcess]:
    with MagnetarProcess(settings={"maxTenants": "2", "maxNamespacesPerTenant": "1"}) as one:
        yield one
        assert "Traceback" not in one.log


def put(server: MagnetarProcess, path: str, body: bytes = b"{}") -> tuple[int, str]:
    status, body = ask(
        f"{server.http_url}/admin/v2/{path}", {"Content-Type": "application/json"}, method="PUT", body=body
    )
    return status, body.decode()


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_pulsar_admin_makes_what_there_may_be(self, server: MagnetarProcess) -> None:
        run_pulsar_shell(server, ["admin tenants create acme", "admin namespaces create acme/one"])
        status, said = put(server, "tenants/more", b'{"allowedClusters": ["standalone"]}')
        assert (status, "Exceed the maximum number of tenants" in said) == (412, True)
        status, said = put(server, "namespaces/acme/two")
        assert (status, "Exceed the maximum number of namespace in tenant :acme" in said) == (412, True)


def test_a_topic_of_kafka_brings_no_more_along(server: MagnetarProcess) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap, "log_level": 0})

    def create(name: str) -> None:
        (made,) = admin.create_topics([NewTopic(name, 1, 1)]).values()
        made.result(60)

    create("persistent://acme/one/topic")
    create("persistent://acme/one/other")
    for name in ("persistent://acme/two/topic", "persistent://more/one/topic"):
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            create(name)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError.POLICY_VIOLATION
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "message.timeout.ms": 2000, "log_level": 0}
        )
        producer.produce(name, b"x")
        producer.flush(30)
    assert sorted(admin.list_topics(timeout=30).topics) == [
        "persistent://acme/one/other",
        "persistent://acme/one/topic",
    ]
