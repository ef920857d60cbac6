"""What `secure` means as settings, and what contradicts it."""

from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.listeners import Listener
from magnetar.base.settings import ServerSettings, load_settings
from magnetar.base.settings_audit import AuditSettings
from magnetar.base.settings_authentication import TOKEN


def of(*assignments: str, **flags: str) -> ServerSettings:
    named = {name.replace("_", "."): value for name, value in flags.items()}
    return load_settings(assignments=assignments, flags={"secure": "true", **named})


def test_every_port_speaks_tls_and_asks_who_clients_are() -> None:
    settings = of("data.dir=/data")
    network = settings.network
    assert network.listeners == (Listener("SASL_SSL", "localhost", 9092, "SASL_SSL"),)
    assert network.sasl["SASL_SSL"].mechanisms == ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert network.sasl["SASL_SSL"].passwords == {}
    assert (network.http_port, network.https_port) == (None, 8443)
    assert (network.pulsar.port, network.pulsar.tls_port) == (None, 6651)
    folder = Path("/data/security")
    assert network.tls["SASL_SSL"].chain.file == folder / "server.pem"
    assert network.pulsar.tls is not None
    assert network.pulsar.tls.key.file == folder / "server.pem"
    assert settings.authentication is not None
    assert settings.authentication.methods == (TOKEN,)
    assert settings.authentication.anonymous_role == ""
    assert settings.authentication.token is not None
    assert settings.authentication.token.key == "file:///data/security/token.key"
    assert settings.authorization is not None
    assert settings.authorization.super_users == {"User:admin"}
    assert not settings.authorization.open_without_rules
    assert settings.pipelines.worker_context == "/data/security/worker.toml"
    assert settings.is_secured
    assert settings.notices == ()
    assert {one.port for one in network.every_listener(1)} == {9092, 6651, 8443}


def test_there_is_an_audit_log_unless_its_own_setting_says_otherwise() -> None:
    assert of().audit == AuditSettings("audit.log", with_logins=False)
    assert of("audit.log=/var/log/audit", "audit.log.logins=all").audit == AuditSettings(
        "/var/log/audit", with_logins=True
    )
    assert of("audit.log=").audit is None
    assert load_settings().audit is None


def test_without_it_nothing_of_that_is_on() -> None:
    for settings in (load_settings(), load_settings(assignments=["secure=false"])):
        assert not settings.is_secured
        assert (settings.authentication, settings.authorization, settings.network.https_port) == (None,) * 3
        assert settings.network.listeners[0].protocol == "PLAINTEXT"
        assert (settings.network.http_port, settings.network.pulsar.port) == (8080, 6650)


@pytest.mark.parametrize(
    ("host", "listens", "elsewhere"),
    [("", "", ""), ("::1", "::1", "::1"), ("kafka.example.com", "kafka.example.com", "kafka.example.com")],
)
def test_host_and_ports_are_those_that_were_said(host: str, listens: str, elsewhere: str) -> None:
    network = of(host=host, kafka_port="1", pulsar_port="2", http_port="3").network
    assert network.listeners == (Listener("SASL_SSL", listens, 1, "SASL_SSL"),)
    assert (network.pulsar.host, network.pulsar.port, network.pulsar.tls_port) == (elsewhere, None, 2)
    assert (network.http_host, network.http_port, network.https_port) == (elsewhere, None, 3)


def test_pulsars_own_names_of_these_ports_may_say_them() -> None:
    network = of("brokerServicePort=", "brokerServicePortTls=16651", "webServicePortTls=18443").network
    assert (network.pulsar.tls_port, network.https_port) == (16651, 18443)


def test_every_source_of_settings_can_turn_it_on(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("secure=true\n")
    assert load_settings(file=file).is_secured
    assert load_settings(environment={"MAGNETAR_SECURE": "true"}).is_secured


@pytest.mark.parametrize(
    "assignment",
    [
        "listeners=PLAINTEXT://:9092",
        "bindAddresses=a:pulsar://:6660",
        "listener.security.protocol.map=SASL_SSL:PLAINTEXT",
        "ssl.keystore.location=/mine.pem",
        "sasl.enabled.mechanisms=PLAIN",
        "authenticationEnabled=false",
        "anonymousUserRole=any",
        "tokenSecretKey=file:///mine",
        "tlsCertificateFilePath=/mine.pem",
        "authorizationEnabled=false",
        "super.users=User:me",
        "allow.everyone.if.no.acl.found=true",
        "messagingProtocols=lines",
        "pipelines.worker.context=/mine.toml",
        "listener.name.sasl_ssl.ssl.client.auth=required",
        "listener.name.sasl_ssl.plain.sasl.jaas.config=x",
    ],
)
def test_what_says_otherwise_how_clients_come_in_is_refused(assignment: str) -> None:
    with pytest.raises(ConfigError, match="both say how clients come in: keep one") as caught:
        of(assignment)
    assert "--secure" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_ports_for_one_purpose_are_refused() -> None:
    with pytest.raises(ConfigError, match="keep brokerServicePortTls"):
        of("brokerServicePort=6650", "brokerServicePortTls=6651")


def test_times_and_sizes_may_be_set() -> None:
    settings = of("connections.max.reauth.ms=60000", "authenticationRefreshCheckSeconds=5")
    assert settings.network.sasl["SASL_SSL"].session_s_max == dict.fromkeys(
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), 60.0
    )
    assert settings.authentication is not None
    assert settings.authentication.refresh_check_s == 5
