"""What Java's keytool has made is shown at both doors, and taken from clients; what cannot be used ends the start."""

import re
import shlex
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pulsar
import pytest
from confluent_kafka.admin import AdminClient

from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import ClientCertificates, Given, Material, TlsSettings
from magnetar.server.certificates import make_context
from magnetar.testing.server import MagnetarProcess, ServerFailed, free_ports
from tests.class_archives import pulsar_tool
from tests.integration.http_answers import ask
from tests.integration.java_tools import KafkaTools, needs_java, run
from tests.integration.quiet_log import assert_quiet
from tests.peers import installed

from .java_stores import EC, KEY_PASSWORD, KEYTOOL, PASSWORD, JavaStores, keytool, keytools

pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(600),  # each call of keytool is a JVM
    pytest.mark.skipif(KEYTOOL is None, reason="needs Java's keytool"),
]


class Stored:
    """A server whose listeners have stores of keytool's, said to be JKS as Kafka has it; those of `mutual` and of
    Pulsar's ports are in Java's old form.
    """

    server: MagnetarProcess

    def __init__(self, folder: Path) -> None:
        self.stores = stores = JavaStores(folder)
        self.ssl, self.mutual, self.pulsar, self.https = free_ports(4)
        self.settings = {
            "listeners": f"SSL://127.0.0.1:{self.ssl},MUTUAL://127.0.0.1:{self.mutual}",
            "listener.security.protocol.map": "MUTUAL:SSL",
            "ssl.keystore.type": "JKS",
            "ssl.keystore.location": str(stores.server),
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.type": "JKS",
            "ssl.truststore.location": str(stores.trust),
            "ssl.truststore.password": PASSWORD,
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.mutual.ssl.keystore.location": str(stores.old_server),
            "listener.name.mutual.ssl.key.password": KEY_PASSWORD,
            "listener.name.mutual.ssl.truststore.location": str(stores.old_trust),
            "brokerServicePortTls": str(self.pulsar),
            "webServicePortTls": str(self.https),
            "tlsEnabledWithKeyStore": "true",
            "tlsKeyStoreType": "JKS",
            "tlsKeyStore": str(stores.pulsar),
            "tlsKeyStorePassword": PASSWORD,
            "tlsTrustStoreType": "JKS",
            "tlsTrustStore": str(stores.old_trust),
            "tlsTrustStorePassword": PASSWORD,
        }


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    one = Stored(tmp_path_factory.mktemp("stores"))
    with MagnetarProcess(settings=one.settings) as server:
        one.server = server
        yield one
        assert_quiet(server.log, PASSWORD)


def librdkafka(stored: Stored, port: int, **more: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": f"localhost:{port}",
        "security.protocol": "ssl",
        "ssl.ca.location": str(stored.stores.authority),
        "log_level": 0,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def test_librdkafka_takes_the_certificate_and_shows_one(stored: Stored) -> None:
    shown = {"ssl_keystore_location": str(stored.stores.client), "ssl_keystore_password": PASSWORD}
    for settings in (librdkafka(stored, stored.ssl), librdkafka(stored, stored.mutual, **shown)):
        producer = confluent_kafka.Producer(settings)
        producer.produce("stored", b"value")
        assert producer.flush(20) == 0
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(librdkafka(stored, stored.mutual)).list_topics(timeout=3)


def test_pulsars_client_takes_the_certificate(stored: Stored) -> None:
    trusted = str(stored.stores.authority)
    client = pulsar.Client(
        f"pulsar+ssl://localhost:{stored.pulsar}",
        tls_trust_certs_file_path=trusted,
        tls_validate_hostname=True,
        logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error),
    )
    client.create_producer("stored").send(b"value")
    client.close()
    context = ssl.create_default_context(cafile=trusted)
    assert ask(f"https://localhost:{stored.https}/admin/v2/clusters", {}, context=context)[0] == 200


def used(file: Path, password: str = PASSWORD, trusted: bool = False) -> ssl.SSLContext:
    """What a listener makes of a store."""
    one = Material("ssl.keystore.location", file, "", Given("JKS", "t"), Given(password, "the password"))
    keys = Material("keys", file.parent / "server.jks", "", Given("", ""), Given(PASSWORD, ""))
    settings = TlsSettings(one, one, None, ClientCertificates.NONE, ("TLSv1.2", "TLSv1.3"))
    return make_context(
        TlsSettings(keys, keys, one, ClientCertificates.REQUIRED, ("TLSv1.3",)) if trusted else settings
    )


def refusal(file: Path, password: str = PASSWORD, trusted: bool = False) -> str:
    with pytest.raises(ConfigError) as said:
        used(file, password, trusted)
    assert PASSWORD not in str(said.value)
    return str(said.value)


def test_what_keytool_has_made_is_judged_by_what_is_in_it(stored: Stored, tmp_path: Path) -> None:
    stores = stored.stores
    for file, trusted in ((stores.server, False), (stores.trust, True)):
        used(file, trusted=trusted)
        assert "is another one" in refusal(file, "wrong", trusted)
        cut = tmp_path / file.name
        cut.write_bytes(file.read_bytes()[:-100])
        if not trusted:
            assert "is cut off" in refusal(cut)
    assert "has no private key" in refusal(stores.trust)
    assert "has a private key" in refusal(stores.server, trusted=True)
    two = tmp_path / "two.jks"
    one = tmp_path / "one.jks"
    keytools(
        *((two, "-genkeypair", "-alias", name, *EC, "-dname", f"CN={name}") for name in ("one", "other")),
        (one, "-importkeystore", "-srckeystore", str(two), "-srcalias", "other", "-srcstorepass", PASSWORD),
    )
    used(two)
    used(one)


def test_a_store_of_an_old_java_is_taken(tmp_path: Path) -> None:
    old = tmp_path / "old.p12"
    keytool(old, "-genkeypair", "-alias", "one", *EC, "-dname", "CN=one", "-J-Dkeystore.pkcs12.legacy")
    used(old)


def of_jks(file: Path, key_password: str = "") -> TlsSettings:
    one = Material("ssl.keystore.location", file, "", Given("JKS", "t"), Given(PASSWORD, "the password"))
    return TlsSettings(
        one, one, None, ClientCertificates.NONE, ("TLSv1.3",), key_password, "ssl.key.password"
    )


@pytest.mark.parametrize("kind", [("RSA", "2048"), ("EC", "384")], ids="-".join)
def test_a_store_of_javas_old_form_is_taken(kind: tuple[str, str], tmp_path: Path) -> None:
    old = tmp_path / "ö.jks"
    made = ["-keyalg", kind[0], "-keysize", kind[1], "-dname", "CN=one", "-storetype", "JKS"]
    keytool(old, "-genkeypair", "-alias", "schlüssel", *made, "-keypass", KEY_PASSWORD)
    make_context(of_jks(old, KEY_PASSWORD))
    for password, why in (("", "whose password is not the password"), ("x", "is not ssl.key.password")):
        with pytest.raises(ConfigError, match=re.escape(why)):
            make_context(of_jks(old, password))
    assert "is another one" in refusal(old, "wrong")
    whole = old.read_bytes()
    for size in (4, 20, len(whole) // 2, len(whole) - 1):
        old.write_bytes(whole[:size])
        assert "is cut off" in refusal(old)
    old.write_bytes(whole)
    keytool(old, "-genkeypair", "-alias", "other", *made, "-keypass", PASSWORD)
    with pytest.raises(ConfigError, match=r"whose password is not ssl\.key\.password"):
        make_context(of_jks(old, KEY_PASSWORD))  # all keys have one


def test_an_old_store_of_trusted_certificates_vouches_as_in_java(stored: Stored) -> None:
    stores = stored.stores
    assert "has no private key" in refusal(stores.old_trust)
    assert len(used(stores.old_trust, trusted=True).get_ca_certs()) == 1
    assert used(stores.old_trust, "", trusted=True).get_ca_certs()
    used(stores.old_server, trusted=True)
    assert "is another one" in refusal(stores.old_trust, "wrong", trusted=True)


def test_a_store_of_jceks_is_converted_as_the_refusal_says(tmp_path: Path) -> None:
    old, new = tmp_path / "old.jceks", tmp_path / "new.jks"
    keytool(
        old,
        "-genkeypair",
        "-alias",
        "one",
        *EC,
        "-dname",
        "CN=one",
        "-storetype",
        "JCEKS",
        "-keypass",
        PASSWORD,
    )
    said = re.search(r"convert it with (keytool .*)$", refusal(old))
    assert said is not None
    command = shlex.split(said[1].replace("OLD", str(old)).replace("NEW", str(new)))
    passwords = ["-srcstorepass", PASSWORD, "-deststorepass", PASSWORD]
    subprocess.run([*command, *passwords], check=True, capture_output=True, timeout=60)
    used(new)


def test_a_wrong_password_ends_the_start_and_is_not_said(stored: Stored) -> None:
    wrong = stored.settings | {"tlsTrustStorePassword": "hunter2"}
    wrong |= {"listeners": "SSL://127.0.0.1:0", "brokerServicePortTls": "0", "webServicePortTls": "0"}
    del wrong["listener.name.mutual.ssl.client.auth"]
    server = MagnetarProcess(settings=wrong)
    with pytest.raises(ServerFailed, match="ended with 2"):
        server.start()
    server.kill()
    server.close()
    sentence = f"tlsTrustStore {stored.stores.old_trust} cannot be opened with tlsTrustStorePassword"
    assert sentence in server.log.splitlines()[-1]
    assert_quiet(server.log, "hunter2")


@pytest.fixture
def client_properties(stored: Stored, tmp_path: Path) -> Path:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.location={stored.stores.trust}\nssl.truststore.password={PASSWORD}\n"
        f"ssl.keystore.location={stored.stores.client}\nssl.keystore.password={PASSWORD}\n"
        f"ssl.key.password={PASSWORD}\n"
    )
    return file


class TestJava:
    pytestmark = needs_java

    def test_kafkas_tools_show_and_take_certificates_of_stores(
        self, stored: Stored, client_properties: Path
    ) -> None:
        topics = ("org.apache.kafka.tools.TopicCommand", "--command-config", str(client_properties))
        with KafkaTools(f"localhost:{stored.mutual}") as tools:
            tools.run(*topics, "--create", "--topic", "by-java")
            assert "by-java" in tools.run(*topics, "--list").split()

    def test_pulsars_admin_takes_the_certificate(self, stored: Stored, tmp_path: Path) -> None:
        file = tmp_path / "client.conf"
        url = f"https://localhost:{stored.https}/"
        file.write_text(
            f"webServiceUrl={url}\nuseKeyStoreTls=true\ntlsTrustStoreType=JKS\n"
            f"tlsTrustStorePath={stored.stores.trust}\ntlsTrustStorePassword={PASSWORD}\n"
            "tlsEnableHostnameVerification=true\n"
        )
        environment = {**pulsar_tool(), "PULSAR_CLIENT_CONF": str(file), "PULSAR_ADMIN_URL": url}
        said = run([installed("pulsar"), "admin", "clusters", "list"], environment=environment)
        assert said.split() == ["standalone"]
