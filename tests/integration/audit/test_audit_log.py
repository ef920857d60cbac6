"""The audit log of a real server: clients of both protocols and of HTTP, kills, rotation, a flood, and no secret."""

import base64
import json
import logging
import socket
import struct
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from passlib.hash import apr_md5_crypt

from magnetar.testing.server import MagnetarProcess, ServerFailed, free_ports
from magnetar.wire.kafka.header import encode_request_header
from magnetar.wire.kafka.messages import asking, list_offsets
from magnetar.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tests.integration.http_answers import ask

pytestmark = pytest.mark.clients
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
BASIC = "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic"
HTTP_PASSWORD = "secret-of-http"
SECRETS = (
    "secret-of-admin",
    "secret-of-alice",
    HTTP_PASSWORD,
    "secret-of-carol",
    "typed-into-the-user",
    "wrong-secret",
    "secret-in-a-record",
    "secret-key-of-a-record",
    "secret-in-a-property",
)
LINES_SOON_S = 20.0


class Audited:
    """A server whose clients log in at every door; `admin` may do everything, `alice` nothing."""

    server: MagnetarProcess

    def __init__(self, folder: Path) -> None:
        passwords = folder / "htpasswd"
        passwords.write_text(
            "".join(f"{user}:{apr_md5_crypt.hash(HTTP_PASSWORD)}\n" for user in ("admin", "alice"))
        )
        self.sasl, self.open = free_ports(2)
        self.data_dir = folder / "data"
        self.log = self.data_dir / "audit.log"
        self.settings = {
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self.sasl},PLAINTEXT://127.0.0.1:{self.open}",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
                f'{PLAIN} required user_admin="secret-of-admin" user_alice="secret-of-alice";'
            ),
            "authenticationEnabled": "true",
            "authenticationProviders": BASIC,
            "basicAuthConf": f"file://{passwords}",
            "authorizationEnabled": "true",
            "superUserRoles": "admin",
            "audit.log": "audit.log",
            "audit.log.logins": "all",
        }

    def kafka(self, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"localhost:{self.sasl}",
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "client.id": "a client",
            "log_level": 0,
        }

    def pulsar(self, user: str, password: str = HTTP_PASSWORD) -> pulsar.Client:
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        shown = pulsar.AuthenticationBasic(user, password)
        return pulsar.Client(self.server.pulsar_url, shown, operation_timeout_seconds=5, logger=silent)

    def rest(
        self, method: str, path: str, body: Any = None, user: str = "admin", password: str = HTTP_PASSWORD
    ) -> int:
        shown = base64.b64encode(f"{user}:{password}".encode()).decode()
        headers = {"authorization": f"Basic {shown}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        return ask(self.server.http_url + path, headers, method=method, body=data)[0]

    def written(self) -> str:
        """What is in the log, behind what was moved away."""
        return "".join(file.read_text() for file in sorted(self.data_dir.glob("audit.*"), reverse=True))

    def lines(self, at_least: int = 1, **wanted: str) -> list[dict[str, Any]]:
        """Those that say this, of which there are so many soon."""
        deadline = time.monotonic() + LINES_SOON_S
        while True:
            every = [json.loads(line) for line in self.written().splitlines()]
            found = [one for one in every if all(one.get(key) == value for key, value in wanted.items())]
            if len(found) >= at_least or time.monotonic() > deadline:
                assert len(found) >= at_least, (wanted, every)
                return found
            time.sleep(0.05)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    one = Audited(tmp_path_factory.mktemp("audited"))
    with MagnetarProcess(settings=one.settings, data_dir=one.data_dir) as server:
        one.server = server
        yield one
        assert "Traceback" not in server.log
    written = one.written() + server.log
    assert not [secret for secret in SECRETS if secret in written]


def test_changes_by_kafka_say_who_made_them(audited: Audited) -> None:
    admin = AdminClient(audited.kafka("admin", "secret-of-admin"))
    new = NewTopic("orders", 3, 1, config={"retention.ms": "3600000"})
    admin.create_topics([new])["orders"].result(20)
    # What was answered is there.
    (line,) = audited.lines(operation="topic.create", resource="persistent://public/default/orders")
    del line["time"]
    assert line == {
        "event": "change",
        "result": "done",
        "principal": "User:admin",
        "host": "127.0.0.1",
        "door": "kafka",
        "listener": "SASL_PLAINTEXT",
        "client": "a client",
        "operation": "topic.create",
        "resource_type": "topic",
        "resource": "persistent://public/default/orders",
        "details": {"partitions": 3, "set": {"retention.ms": "3600000"}},
    }
    with pytest.raises(confluent_kafka.KafkaException):
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(20)
    (failed,) = audited.lines(operation="topic.create", result="failed")
    assert failed["error"] == "TOPIC_EXISTS"

    entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "orders", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(20)
    (line,) = audited.lines(operation="topic.configs")
    assert line["details"]["set"] == {"retention.ms": "1000"}

    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    acl = AclBinding(ResourceType.GROUP, "g", literal, "User:alice", "*", AclOperation.READ, allow)
    admin.create_acls([acl])[acl].result(20)
    (line,) = audited.lines(operation="acl.create")
    assert (line["resource_type"], line["resource"]) == ("subscription", "g")
    assert line["details"]["principal"] == "User:alice"

    upsertion = UserScramCredentialUpsertion(
        "carol", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret-of-carol"
    )
    admin.alter_user_scram_credentials([upsertion])["carol"].result(20)
    (line,) = audited.lines(operation="scram.set")
    assert (line["resource_type"], line["resource"]) == ("user", "carol")
    assert line["details"] == {"mechanism": "SCRAM-SHA-256", "iterations": 4096}

    admin.delete_topics(["orders"])["orders"].result(20)
    audited.lines(operation="topic.delete", resource="persistent://public/default/orders")


def test_changes_by_rest_and_pulsars_clients_say_who_made_them(audited: Audited) -> None:
    assert audited.rest("PUT", "/admin/v2/namespaces/public/audited", {}) == 204
    assert audited.rest("PUT", "/admin/v2/namespaces/public/audited", {}) == 409
    done, failed = audited.lines(operation="namespace.create", resource="public/audited")
    assert (done["principal"], done["door"], done["listener"]) == ("User:admin", "http", "http")
    assert done["client"].startswith("Python-urllib")
    assert failed["error"] == "NAMESPACE_EXISTS"
    path = "/admin/v2/namespaces/public/audited/properties"
    assert audited.rest("PUT", path, {"owner": "secret-in-a-property"}) == 204
    path = "/admin/v2/namespaces/public/audited/permissions/alice"
    assert audited.rest("POST", path, ["consume"]) == 204
    (line,) = audited.lines(operation="permission.grant")
    assert line["details"] == {"role": "alice", "actions": ["consume"]}
    client = audited.pulsar("admin")
    client.create_producer("persistent://public/audited/t").send(
        b"secret-in-a-record", partition_key="secret-key-of-a-record"
    )
    client.close()
    (line,) = audited.lines(operation="topic.create", resource="persistent://public/audited/t")
    assert (line["principal"], line["door"]) == ("User:admin", "pulsar")
    assert line["details"] == {"automatic": True}
    client = audited.pulsar("admin")
    for _ in range(2):  # the second one finds it
        client.subscribe("persistent://public/audited/t", "watchers").close()
    client.close()
    (line,) = audited.lines(operation="subscription.create")
    assert (line["resource"], line["topic"]) == ("watchers", "persistent://public/audited/t")
    assert (line["principal"], line["door"], line["details"]) == ("User:admin", "pulsar", {"automatic": True})


def test_refusals_of_every_door_say_to_whom(audited: Audited) -> None:
    codes: list[int] = []
    settings = {**audited.kafka("alice", "secret-of-alice"), "enable.idempotence": False}
    producer = confluent_kafka.Producer(settings)
    producer.produce(
        "hidden",
        b"secret-in-a-record",
        on_delivery=lambda error, _: codes.append(error.code() if error else 0),
    )
    producer.flush(20)
    assert codes == [29]
    line = audited.lines(event="refusal", principal="User:alice", door="kafka")[0]
    assert (line["resource"], line["client"]) == ("persistent://public/default/hidden", "a client")
    client = audited.pulsar("alice")
    with pytest.raises(pulsar.AuthorizationError):
        client.create_producer("persistent://public/default/unseen")
    client.close()
    line = audited.lines(event="refusal", principal="User:alice", door="pulsar")[0]
    assert line["resource"] == "persistent://public/default/unseen"
    assert audited.rest("DELETE", "/admin/v2/tenants/public", user="alice") == 401
    (line,) = audited.lines(event="refusal", principal="User:alice", door="http")
    assert (line["operation"], line["resource_type"], line["resource"]) == ("DELETE", "tenant", "public")


def test_logins_that_fail_name_no_more_than_users_that_there_are(audited: Audited) -> None:
    for user in ("alice", "typed-into-the-user"):
        with pytest.raises(confluent_kafka.KafkaException):
            AdminClient(audited.kafka(user, "wrong-secret")).list_topics(timeout=3)
        assert audited.rest("GET", "/admin/v2/clusters", user=user, password="wrong-secret") == 401
    for door, method in ("kafka", "PLAIN"), ("http", "basic"):
        found = audited.lines(2, event="login", result="refused", door=door)
        assert {one.get("principal") for one in found} == {"User:alice", None}
        assert {one["method"] for one in found} == {method}
    AdminClient(audited.kafka("admin", "secret-of-admin")).list_topics(timeout=10)
    audited.lines(event="login", result="accepted", principal="User:admin", door="kafka")


def test_a_flood_of_refusals_is_some_lines_and_others_are_served(tmp_path: Path) -> None:
    frames = []
    for number in range(10_000):
        topics = [ListOffsetsTopic(f"flood-{number % 2_000}", [ListOffsetsPartition(0, timestamp=-1)])]
        parts: list[Any] = [encode_request_header(list_offsets.API_KEY, 5, number, "flood")]
        asking.load(list_offsets.API_KEY).encode_request(5, ListOffsetsRequest(-1, 0, topics), parts)
        frame = b"".join(parts)
        frames.append(len(frame).to_bytes(4, "big") + frame)
    settings = {"authorizationEnabled": "true", "superUserRoles": "admin", "audit.log": "audit.log"}
    data_dir = tmp_path / "data"
    with MagnetarProcess(settings=settings, data_dir=data_dir) as server:
        flooding = socket.create_connection(("127.0.0.1", server.ports[0]))
        flooding.settimeout(60)
        slowest_s = 0.0
        with flooding:
            for number in range(0, len(frames), 500):
                flooding.sendall(b"".join(frames[number : number + 500]))
                began_s = time.monotonic()
                with urllib.request.urlopen(f"{server.http_url}/health", timeout=20) as answer:
                    assert answer.status == 200
                slowest_s = max(slowest_s, time.monotonic() - began_s)
            answers = flooding.makefile("rb")
            for _ in frames:
                (size,) = struct.unpack(">i", answers.read(4))
                assert len(answers.read(size)) == size
        assert slowest_s < 5.0
    lines = [json.loads(line) for line in (data_dir / "audit.log").read_text().splitlines()]
    assert len(lines) < 1_000
    assert sum(line.get("count", 1) for line in lines) == 10_000
    assert {line["event"] for line in lines} == {"refusal", "dropped"}


def test_a_log_that_was_moved_away_goes_on_anew_and_a_kill_loses_no_answered_change(audited: Audited) -> None:
    moved = audited.log.with_suffix(".1")
    audited.log.rename(moved)
    for number in range(5):
        assert audited.rest("PUT", f"/admin/v2/namespaces/public/kept-{number}", {}) == 204
    audited.server.kill()
    found = [json.loads(line) for line in audited.log.read_text().splitlines()]
    created = [line["resource"] for line in found if line.get("operation") == "namespace.create"]
    assert created == [f"public/kept-{number}" for number in range(5)]
    assert "kept-" not in moved.read_text()
    audited.server.restart()
    assert audited.rest("DELETE", "/admin/v2/namespaces/public/kept-0") == 204
    audited.lines(operation="namespace.delete")


def test_a_start_without_a_place_for_it_is_one_sentence(tmp_path: Path) -> None:
    settings = {"audit.log": "/nowhere/at/all.log"}
    with pytest.raises(ServerFailed, match=r"audit\.log: /nowhere/at/all\.log cannot be written"):
        MagnetarProcess(settings=settings, data_dir=tmp_path / "data").__enter__()


def test_standard_output_takes_it_too(tmp_path: Path) -> None:
    with MagnetarProcess(settings={"audit.log": "stdout"}, data_dir=tmp_path / "data") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
    (line,) = [one for one in server.log.splitlines() if one.startswith("{")]
    assert json.loads(line)["operation"] == "topic.create"


def test_a_folder_that_is_lost_stops_nothing_and_is_said_by_health(tmp_path: Path) -> None:
    folder, moved = tmp_path / "logs", tmp_path / "moved"
    folder.mkdir()
    settings = {"audit.log": str(folder / "audit.log")}

    def health(server: MagnetarProcess) -> str:
        with urllib.request.urlopen(f"{server.http_url}/health", timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    with MagnetarProcess(settings=settings, data_dir=tmp_path / "data") as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        folder.rename(moved)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        assert "The audit log cannot be written" in health(server)
        folder.mkdir()
        deadline = time.monotonic() + LINES_SOON_S
        while "audit" in health(server):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert "The audit log cannot be written" in server.log
    (line,) = (folder / "audit.log").read_text().splitlines()
    assert json.loads(line)["operation"] == "topic.create"
