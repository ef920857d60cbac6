"""`--secure`: clients that we did not write connect by the files that the server writes, and by nothing less."""

import contextlib
import json
import logging
import ssl
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from magnetar.server.token_tool import make_token
from magnetar.testing.server import MagnetarProcess, ServerFailed, free_ports
from tests.integration.http_answers import ask
from tests.integration.server.wire import eventually

pytestmark = pytest.mark.clients


def properties(file: Path) -> dict[str, str]:
    """As Java reads them, without continued lines, which there are none of."""
    lines = (one for one in file.read_text(encoding="ascii").splitlines() if not one.startswith("#"))
    pairs = (one.encode().decode("unicode_escape").partition("=") for one in lines)
    return {key: value for key, _, value in pairs}


class Safe:
    """A server with `--secure`, and its clients by its files."""

    def __init__(self, data_dir: Path) -> None:
        self.server = MagnetarProcess(arguments=["--secure"], data_dir=data_dir, host=None)
        self.folder = data_dir / "security"

    def kafka(self) -> dict[str, str]:
        """Settings of librdkafka, which knows no JAAS: the same values under its names."""
        given = properties(self.folder / "client.properties")
        user, password = (
            given["sasl.jaas.config"].split(f'{one}="')[1].split('"')[0] for one in ("username", "password")
        )
        assert given["ssl.truststore.type"] == "PEM"
        return {
            "bootstrap.servers": given["bootstrap.servers"],
            "security.protocol": given["security.protocol"],
            "sasl.mechanism": given["sasl.mechanism"],
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": given["ssl.truststore.location"],
        }

    def pulsar(self, url: str = "brokerServiceUrl", *, with_token: bool = True) -> pulsar.Client:
        given = properties(self.folder / "client.conf")
        assert given["authPlugin"].endswith(".AuthenticationToken")
        token = Path(unquote(given["authParams"].removeprefix("file://"))).read_text()
        silent = logging.getLogger("pulsar-client")
        silent.setLevel(logging.CRITICAL)
        return pulsar.Client(
            given[url],
            pulsar.AuthenticationToken(token) if with_token else None,
            tls_trust_certs_file_path=given["tlsTrustCertsFilePath"],
            tls_validate_hostname=given["tlsEnableHostnameVerification"] == "true",
            operation_timeout_seconds=10 if with_token else 3,
            logger=silent,
        )

    def get(self, path: str, token: str = "") -> tuple[int, bytes]:
        url = properties(self.folder / "client.conf")["webServiceUrl"].rstrip("/") + path
        headers = {"authorization": f"Bearer {token}"} if token else {}
        trusting = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        return ask(url, headers, context=trusting)

    @property
    def token(self) -> str:
        return (self.folder / "admin.token").read_text()


@pytest.fixture(scope="module")
def safe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Safe]:
    one = Safe(tmp_path_factory.mktemp("a folder with ü") / "data")
    with one.server:
        yield one
        assert "Traceback" not in one.server.log
        assert "eyJ" not in one.server.log


def records(settings: dict[str, str], topic: str) -> list[bytes | None]:
    consumer = confluent_kafka.Consumer({**settings, "group.id": "g", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        found = consumer.consume(1, 20)
        return [one.value() for one in found]
    finally:
        consumer.close()


def produce(settings: dict[str, str], topic: str, value: bytes) -> None:
    failures: list[object] = []
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": "10000"})
    producer.produce(topic, value, on_delivery=lambda error, _: failures.append(error) if error else None)
    assert producer.flush(20) == 0
    assert failures == []


def test_a_kafka_client_works_by_its_file(safe: Safe) -> None:
    admin = AdminClient({**safe.kafka()})
    admin.create_topics([NewTopic("by-kafka", 1)])["by-kafka"].result(20)
    produce(safe.kafka(), "by-kafka", b"1")
    assert records(safe.kafka(), "by-kafka") == [b"1"]


@pytest.mark.parametrize("url", ["brokerServiceUrl", "webServiceUrl"])
def test_a_pulsar_client_works_by_its_file(safe: Safe, url: str) -> None:
    client = safe.pulsar(url)
    try:
        consumer = client.subscribe(f"by-{url}", "s")
        client.create_producer(f"by-{url}").send(b"2")
        assert consumer.receive(20_000).data() == b"2"
    finally:
        client.close()


def test_http_takes_the_token(safe: Safe) -> None:
    status, body = safe.get("/admin/v2/clusters/standalone", safe.token)
    found = json.loads(body)
    assert status == 200
    assert found["serviceUrlTls"].startswith("https://localhost:")
    assert found["brokerServiceUrlTls"].startswith("pulsar+ssl://")
    assert (found["serviceUrl"], found["brokerServiceUrl"]) == ("", "")
    assert safe.get("/magnetar/v1/pipelines", safe.token)[0] == 200


def test_nothing_is_had_without_a_token(safe: Safe) -> None:
    assert safe.get("/admin/v2/clusters")[0] == 401
    assert safe.get("/magnetar/v1/topics", "nonsense")[0] == 401
    assert safe.get("/metrics")[0] == 401
    assert safe.get("/ready")[0] == 200
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient({**safe.kafka(), "sasl.password": "token:nonsense"}).list_topics(timeout=5)
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(
            {"bootstrap.servers": safe.kafka()["bootstrap.servers"], "security.protocol": "PLAINTEXT"}
        ).list_topics(timeout=3)
    client = safe.pulsar(with_token=False)
    try:
        with pytest.raises(pulsar.PulsarException):
            client.create_producer("refused")
    finally:
        client.close()


def test_another_user_comes_in_and_may_do_nothing(safe: Safe) -> None:
    """By a token of the server's key, and by a password that the administrator has set."""
    key = (safe.folder / "token.key").as_uri()
    token = make_token("alice", "", key, None, "1h", [])
    assert safe.get("/admin/v2/clusters", token)[0] == 200
    assert safe.get("/admin/v2/persistent/public/default", token)[0] == 403
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    administrator = AdminClient({**safe.kafka()})
    added = administrator.alter_user_scram_credentials(
        [UserScramCredentialUpsertion("bob", credential, b"his")]
    )
    added["bob"].result(20)
    by_password = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "bob", "sasl.password": "his"}
    for shown in ({"sasl.password": f"token:{token}"}, by_password):
        admin = AdminClient({**safe.kafka(), **shown})
        assert admin.list_topics(timeout=20).topics == {}
        with pytest.raises(confluent_kafka.KafkaException) as caught:
            admin.create_topics([NewTopic("not-theirs", 1)])["not-theirs"].result(20)
        assert caught.value.args[0].code() == confluent_kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_who_does_what_is_written_down(safe: Safe) -> None:
    admin = AdminClient({**safe.kafka()})
    admin.create_topics([NewTopic("written-down", 1)])["written-down"].result(20)
    assert safe.get("/admin/v2/tenants", "nonsense")[0] == 401
    file = safe.folder.parent / "audit.log"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

    def told() -> set[tuple[Any, ...]]:
        lines = map(json.loads, file.read_text().splitlines())
        return {(one["event"], one["result"], one.get("principal"), one.get("resource")) for one in lines}

    assert ("change", "done", "User:admin", "persistent://public/default/written-down") in told()
    eventually(lambda: ("login", "refused", None, None) in told(), "the refusal is not written")


def test_others_are_not_trusted_with_the_token(safe: Safe) -> None:
    """A client that checks certificates refuses one that another authority has signed: here, by trusting others."""
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"https://localhost:{safe.server.http_port}/ready", timeout=20)


def test_there_are_three_ports_and_all_speak_tls(safe: Safe) -> None:
    inodes = set()
    for link in Path(f"/proc/{safe.server.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            inodes.add(link.readlink().as_posix().removeprefix("socket:[").removesuffix("]"))
    ports = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes:
                ports.add(int(words[1].rpartition(":")[2], 16))
    assert ports == {safe.server.ports[0], safe.server.pulsar_port, safe.server.http_port}
    trusting = ssl.create_default_context(cafile=str(safe.folder / "ca.pem"))
    for port in ports:
        for host in ("localhost", "127.0.0.1"):
            assert ssl.get_server_certificate((host, port), ca_certs=str(safe.folder / "ca.pem"), timeout=20)
    assert trusting.verify_mode is ssl.CERT_REQUIRED


def test_the_lines_at_the_start_name_the_files(safe: Safe) -> None:
    for name in ("client.properties", "client.conf", "context.toml", "ca.pem"):
        assert f"{safe.folder / name}\n" in safe.server.log
    assert stat.S_IMODE(safe.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in safe.folder.iterdir()} == {0o600}


def test_a_restart_keeps_all_and_a_new_address_is_in_the_certificate(tmp_path: Path) -> None:
    safe = Safe(tmp_path)
    with safe.server:
        produce(safe.kafka(), "kept", b"1")
        before = {one.name: one.read_bytes() for one in safe.folder.iterdir()}
        safe.server.kill()
        safe.server.restart()
        assert {one.name: one.read_bytes() for one in safe.folder.iterdir()} == before
        assert records(safe.kafka(), "kept") == [b"1"]
    second = Safe(tmp_path)
    second.server = MagnetarProcess(
        arguments=["--secure", "--set", "advertised.host=localhost.localdomain"],
        data_dir=tmp_path,
        host="127.0.0.1",
    )
    with second.server:
        after = {one.name: one.read_bytes() for one in second.folder.iterdir()}
        same = {name for name in before if after[name] == before[name]}
        assert same >= {"ca.key", "ca.pem", "token.key", "admin.token"}
        assert b"localhost.localdomain" in after["client.properties"]
        assert second.get("/ready")[0] == 200


def test_settings_that_contradict_it_are_one_sentence(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    server = MagnetarProcess(
        arguments=["--secure"],
        settings={"listeners": f"PLAINTEXT://127.0.0.1:{port}"},
        data_dir=tmp_path / "data",
    )
    with pytest.raises(
        ServerFailed, match=r"magnetar: listeners \(--set listeners\) and secure \(--secure\) both"
    ):
        server.start()
    assert not (tmp_path / "data" / "security").exists()


def test_functions_are_refused_before_a_port_is_open(tmp_path: Path) -> None:
    """Their processes reach no port with TLS, and a server that ends behind "ready" has had clients."""
    server = MagnetarProcess(
        arguments=["--secure"],
        settings={"functionsWorkerEnabled": "true"},
        data_dir=tmp_path / "data",
        host=None,
    )
    refusal = "magnetar: functionsWorkerEnabled: functions need a listener of Pulsar's without TLS"
    with pytest.raises(ServerFailed, match=refusal) as caught:
        server.start()
    assert "ready" not in str(caught.value)
    assert "kafka " not in str(caught.value)


def test_a_first_start_that_is_killed_is_finished_by_the_next(tmp_path: Path) -> None:
    (tmp_path / "security.new").mkdir()
    (tmp_path / "security.new" / "token.key").write_bytes(b"half")
    safe = Safe(tmp_path)
    for _ in range(3):
        safe.server.spawn()
        safe.server.kill()
    with safe.server:
        assert safe.get("/admin/v2/clusters", safe.token)[0] == 200
        assert not (tmp_path / "security.new").exists()


def test_the_workers_files_let_it_in(safe: Safe) -> None:
    """`magnetar worker` as the server starts it, up to the lease: Spark is not for this test."""
    asked = (
        "import queue, sys, threading; from pathlib import Path;"
        "from magnetar.client.login import Server; from magnetar.pipelines.worker.link import Link;"
        "folder = Path(sys.argv[1]); server = Server.of(str(folder / 'security/worker.toml'));"
        "link = Link(server, folder, folder / 'worker-token', queue.SimpleQueue());"
        "assert link.acquire(threading.Event()); print(link.lease.bootstrap); link.close()"
    )
    data_dir = str(safe.server.data_dir)
    done = subprocess.run(
        [sys.executable, "-c", asked, data_dir], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == f"localhost:{safe.server.ports[0]}\n", done.stderr
