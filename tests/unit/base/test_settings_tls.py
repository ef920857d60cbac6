"""What the keys of TLS come to, for each listener; and which of them are refused."""

from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.settings import ServerSettings, load_settings
from magnetar.base.settings_tls import ClientCertificates, TlsSettings

SSL = ("listeners=SSL://:9093", "ssl.keystore.location=/k/both.pem")
PULSAR = ("brokerServicePortTls=6651", "tlsCertificateFilePath=/c.pem", "tlsKeyFilePath=/k.pem")


def of(*assignments: str) -> ServerSettings:
    return load_settings(assignments=assignments)


def problem(*assignments: str) -> str:
    with pytest.raises(ConfigError) as said:
        of(*assignments)
    return str(said.value)


def kafka(*assignments: str) -> TlsSettings:
    return of(*SSL, *assignments).network.tls["SSL"]


def pulsar(*assignments: str) -> TlsSettings:
    tls = of(*PULSAR, *assignments).network.pulsar.tls
    assert tls is not None
    return tls


def test_nothing_of_it_by_default() -> None:
    network = of().network
    assert (network.tls, network.pulsar.tls, network.pulsar.tls_port) == ({}, None, None)


def test_a_file_with_key_and_chain() -> None:
    tls = kafka()
    assert tls.chain == tls.key
    assert (tls.chain.setting, tls.chain.file) == ("ssl.keystore.location", Path("/k/both.pem"))
    assert tls.trusted is None
    assert tls.client_certificates is ClientCertificates.NONE
    assert tls.versions == ("TLSv1.2", "TLSv1.3")


def test_all_of_kafkas_keys_by_their_names_and_kops() -> None:
    tls = kafka(
        "ssl.keystore.type=pem",
        "ssl.key.password=hunter2",
        "kopSslTruststoreType=PEM",
        "kopSslTruststoreLocation=trust.pem",
        "kopSslClientAuth=requested",
        "ssl.enabled.protocols=TLSv1.3",
    )
    assert (tls.password, tls.password_setting) == ("hunter2", "ssl.key.password")
    assert tls.trusted is not None
    assert tls.trusted.file == Path.cwd() / "trust.pem"
    assert tls.client_certificates is ClientCertificates.REQUESTED
    assert tls.versions == ("TLSv1.3",)


def test_pem_as_text() -> None:
    tls = of(
        "listeners=SSL://:1",
        "ssl.keystore.key=KEY",
        "ssl.keystore.certificate.chain=CHAIN",
        "ssl.truststore.certificates=TRUST",
        "ssl.client.auth=required",
    ).network.tls["SSL"]
    assert (tls.key.text, tls.chain.text, tls.key.file) == ("KEY", "CHAIN", None)
    assert tls.trusted is not None
    assert tls.trusted.text == "TRUST"


def test_a_listener_has_its_own_before_those_of_all() -> None:
    network = of(
        "listeners=PLAINTEXT://:1,SSL://:2,Inner://:3",
        "listener.security.protocol.map=INNER:SSL",
        "ssl.keystore.location=/all.pem",
        "ssl.truststore.location=/trust.pem",
        "listener.name.inner.ssl.client.auth=required",
        "listener.name.inner.ssl.keystore.location=/inner.pem",
        "listener.name.ssl.ssl.client.auth=none",
    ).network
    assert set(network.tls) == {"SSL", "INNER"}
    assert network.tls["SSL"].chain.file == Path("/all.pem")
    assert network.tls["SSL"].client_certificates is ClientCertificates.NONE
    assert network.tls["INNER"].chain.file == Path("/inner.pem")
    assert network.tls["INNER"].client_certificates is ClientCertificates.REQUIRED


def test_names_of_clients_are_a_listeners_own_before_those_of_all() -> None:
    principals = of(
        "listeners=SSL://:1,INNER://:2,PLAIN://:3",
        "listener.security.protocol.map=INNER:SSL,PLAIN:PLAINTEXT",
        "ssl.keystore.location=/all.pem",
        "listener.name.inner.ssl.principal.mapping.rules=RULE:^CN=([A-Za-z0-9.-]+),OU=People.*$/$1/L,DEFAULT",
    ).network.principals
    assert {name: rules.name_of("CN=Dave,OU=People") for name, rules in principals.items()} == {
        "SSL": "CN=Dave,OU=People",
        "INNER": "dave",
    }


def test_pulsars_keys() -> None:
    settings = of(*PULSAR).network.pulsar
    assert settings.tls_port == 6651
    tls = pulsar()
    assert (tls.chain.file, tls.key.file) == (Path("/c.pem"), Path("/k.pem"))
    assert tls.client_certificates is ClientCertificates.NONE
    trusting = pulsar("tlsTrustCertsFilePath=/t.pem")
    assert trusting.client_certificates is ClientCertificates.REQUESTED
    strict = pulsar(
        "tlsTrustCertsFilePath=/t.pem", "tlsRequireTrustedClientCertOnConnect=true", "tlsProtocols=TLSv1.2"
    )
    assert strict.client_certificates is ClientCertificates.REQUIRED
    assert strict.versions == ("TLSv1.2",)


def test_suites_of_both_doors() -> None:
    suite, ciphers = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"
    one = kafka(f"kopSslCipherSuites={suite}")
    assert (one.ciphers, one.versions) == ((ciphers, "ssl.cipher.suites"), ("TLSv1.2",))
    other = pulsar(f"tlsCiphers={suite}")
    assert (other.ciphers, other.versions) == ((ciphers, "tlsCiphers"), ("TLSv1.2",))
    assert kafka().ciphers.text == pulsar().ciphers.text == ""


def test_a_store_has_a_form_and_a_password() -> None:
    tls = kafka(
        "ssl.keystore.type=pkcs12",
        "ssl.keystore.password=hunter2",
        "kopSslTruststoreType=JKS",
        "kopSslTruststoreLocation=trust.jks",
        "kopSslTruststorePassword=hunter3",
    )
    assert tls.chain == tls.key
    assert (tls.chain.kind, tls.chain.password) == (
        ("PKCS12", "ssl.keystore.type"),
        ("hunter2", "ssl.keystore.password"),
    )
    assert tls.trusted is not None
    assert (tls.trusted.kind.text, tls.trusted.password.text) == ("JKS", "hunter3")
    assert kafka().chain.kind.text == ""
    assert "hunter" not in repr(tls)


def test_pulsars_stores() -> None:
    stores = (
        "brokerServicePortTls=6651",
        "tlsEnabledWithKeyStore=true",
        "tlsKeyStoreType=JKS",
        "tlsKeyStore=/keys",
        "tlsKeyStorePassword=hunter2",
    )
    settings = of(*stores, "tlsKeyFilePath=/k.pem")
    tls = settings.network.pulsar.tls
    assert tls is not None
    assert tls.chain == tls.key
    assert (tls.chain.file, tls.chain.kind.text, tls.chain.password.text) == (Path("/keys"), "JKS", "hunter2")
    assert (tls.trusted, tls.client_certificates) == (None, ClientCertificates.NONE)
    assert [one for one in settings.notices if "tlsKeyFilePath" in one] == [
        "--set tlsKeyFilePath: tlsKeyFilePath has no effect: tlsEnabledWithKeyStore is true"
    ]
    trust = ("tlsTrustStore=/trust", "tlsTrustStoreType=pkcs12", "tlsTrustStorePassword=hunter3")
    trusting = of(*stores, *trust, "tlsTrustCertsFilePath=/t.pem").network.pulsar.tls
    assert trusting is not None
    assert trusting.trusted is not None
    assert (trusting.trusted.file, trusting.trusted.kind.text) == (Path("/trust"), "PKCS12")
    assert trusting.trusted.password.text == "hunter3"
    assert trusting.client_certificates is ClientCertificates.REQUESTED
    assert "hunter" not in repr(settings) + repr(of(*stores, *trust))


def test_what_pulsars_own_file_says_of_tls_is_taken() -> None:
    """The keys of its standalone.conf, as they stand there."""
    settings = of(
        *PULSAR,
        *["tlsCertRefreshCheckDurationSec=300", "tlsTrustCertsFilePath=", "tlsAllowInsecureConnection=false"],
        *["tlsProtocols=", "tlsCiphers=", "tlsRequireTrustedClientCertOnConnect=false", "tlsProvider="],
        *[
            "webServiceTlsProvider=Conscrypt",
            "tlsEnabledWithKeyStore=false",
            "tlsKeyStoreType=JKS",
            "tlsKeyStore=",
        ],
        *["tlsKeyStorePassword=", "tlsTrustStoreType=JKS", "tlsTrustStore=", "tlsTrustStorePassword="],
        *[
            "brokerClientTlsEnabled=false",
            "brokerClientTlsEnabledWithKeyStore=false",
            "brokerClientSslProvider=",
        ],
        *["brokerClientTrustCertsFilePath=", "brokerClientKeyFilePath=", "brokerClientCertificateFilePath="],
        *["brokerClientTlsKeyStoreType=JKS", "brokerClientTlsKeyStore=", "brokerClientTlsKeyStorePassword="],
        *[
            "brokerClientTlsTrustStoreType=JKS",
            "brokerClientTlsTrustStore=",
            "brokerClientTlsTrustStorePassword=",
        ],
        *["brokerClientTlsCiphers=", "brokerClientTlsProtocols="],
    )
    tls = settings.network.pulsar.tls
    assert tls is not None
    assert tls.versions == ("TLSv1.2", "TLSv1.3")
    assert "tlsAllowInsecureConnection must be false" in problem("tlsAllowInsecureConnection=true")


def test_pulsars_stores_count_when_that_is_said() -> None:
    settings = of(*PULSAR, "tlsKeyStore=/keys", "tlsTrustStore=/trust")
    tls = settings.network.pulsar.tls
    assert tls is not None
    assert (tls.chain.file, tls.trusted) == (Path("/c.pem"), None)
    assert (tls.chain.kind, tls.key.kind) == (("PEM", ""), ("PEM", ""))
    assert [notice.rpartition(": ")[2] for notice in settings.notices] == [
        "tlsEnabledWithKeyStore is not true"
    ] * 2


@pytest.mark.parametrize(
    ("assignments", "sentence"),
    [
        (
            ("listeners=SSL://:1",),
            "listener SSL speaks TLS and has no certificate: set ssl.keystore.location",
        ),
        (("listeners=SSL://:1", "ssl.keystore.key=x"), "listener SSL speaks TLS and has no certificate"),
        ((*SSL, "ssl.keystore.key=x"), "ssl.keystore.location and ssl.keystore.key both have a certificate"),
        ((*SSL, "ssl.keystore.type=BCFKS"), "ssl.keystore.type must be one of PEM, PKCS12, JKS, not 'BCFKS'"),
        ((*SSL, "ssl.truststore.type=x"), "ssl.truststore.type must be one of PEM, PKCS12, JKS, not 'x'"),
        ((*SSL, "ssl.client.auth=required"), "ssl.client.auth is required, and nothing says whose"),
        ((*SSL, "ssl.client.auth=perhaps"), "must be one of none, requested, required"),
        (
            (*SSL, "ssl.enabled.protocols=TLSv1.1,TLSv1.2"),
            "must be among TLSv1.2, TLSv1.3, not 'TLSv1.1,TLSv1.2'",
        ),
        ((*SSL, "ssl.enabled.protocols="), "ssl.enabled.protocols must be among"),
        ((*SSL, "ssl.cipher.suites=TLS_NULL"), "ssl.cipher.suites has 'TLS_NULL', which is no suite"),
        (
            (
                *SSL,
                "ssl.enabled.protocols=TLSv1.3",
                "listener.name.ssl.ssl.cipher.suites=TLS_RSA_WITH_AES_128_CBC_SHA",
            ),
            "ssl.cipher.suites of listener SSL has no suite of TLSv1.3",
        ),
        ((*PULSAR, "tlsCiphers=TLS_AES_128_GCM_SHA256"), "tlsCiphers has some suites of TLS 1.3"),
        ((*SSL, "ssl.truststore.location=/a", "ssl.truststore.certificates=b"), "both have certificates"),
        (
            (*SSL, "listener.name.ssl.ssl.client.auth=required"),
            "ssl.client.auth of listener SSL is required, and nothing says whose",
        ),
        ((*SSL, "listener.name.ssl.ssl.keystore.type=x"), "ssl.keystore.type of listener SSL must be one of"),
        (
            (*SSL, "listener.name.ssl.ssl.client.auth=none", "listener.name.SSL.ssl.client.auth=requested"),
            "has different values",
        ),
        ((*SSL, "listener.name.ssl.ssl.nonsense=1"), "unknown key"),
        ((*SSL, "ssl.principal.mapping.rules="), "ssl.principal.mapping.rules has no rule"),
        ((*SSL, "ssl.principal.mapping.rules=RULE:(?=a)/b/"), "which RE2 cannot run"),
        (
            (*SSL, "listener.name.ssl.ssl.principal.mapping.rules=RULE:a/b"),
            "ssl.principal.mapping.rules of listener SSL has no rule at 'RULE:a/b'",
        ),
        (("brokerServicePortTls=1",), "brokerServicePortTls needs a certificate and its key: set tlsCert"),
        (PULSAR[:2], "set tlsKeyFilePath"),
        ((*PULSAR, "tlsRequireTrustedClientCertOnConnect=true"), "set tlsTrustCertsFilePath"),
        (
            ("webServicePortTls=1", "tlsEnabledWithKeyStore=true"),
            "webServicePortTls needs a certificate and its key: set tlsKeyStore",
        ),
        (
            ("webServicePortTls=1", "tlsEnabledWithKeyStore=true", "tlsKeyStore=/k", "tlsKeyStoreType=x"),
            "tlsKeyStoreType must be one of PEM, PKCS12, JKS",
        ),
        (
            (
                *PULSAR,
                "tlsEnabledWithKeyStore=true",
                "tlsKeyStore=/k",
                "tlsTrustCertsFilePath=/t.pem",
                "tlsRequireTrustedClientCertOnConnect=true",
            ),
            "set tlsTrustStore",
        ),
        ((*PULSAR, "tlsProtocols=SSLv3"), "tlsProtocols must be among"),
        ((*PULSAR, "pulsar.port=6651"), "claim the same address"),
    ],
)
def test_what_is_refused(assignments: tuple[str, ...], sentence: str) -> None:
    said = problem(*assignments)
    assert sentence in said
    assert "hunter2" not in said


def test_keys_of_a_server_without_tls_have_no_effect_and_that_is_said() -> None:
    settings = of(
        "ssl.keystore.type=JKS",
        "ssl.keystore.password=hunter2",
        "tlsCertificateFilePath=/c.pem",
        "listener.name.plaintext.ssl.client.auth=required",
        "ssl.protocol=TLS",
        "listener.name.plaintext.ssl.principal.mapping.rules=DEFAULT",
    )
    assert [notice.partition(" has no effect: ")[2] for notice in settings.notices] == [
        "OpenSSL does what Java's security providers do elsewhere",
        "no listener speaks TLS",
        "no listener speaks TLS",
        "no listener PLAINTEXT speaks TLS",
        "no listener PLAINTEXT speaks TLS",
        "neither brokerServicePortTls nor webServicePortTls is set",
    ]


def test_no_secret_is_shown() -> None:
    settings = of(
        *SSL,
        "ssl.key.password=hunter2",
        "listener.name.ssl.ssl.key.password=hunter3",
    )
    assert settings.network.tls["SSL"].password == "hunter3"
    assert settings.given["ssl.key.password"].text == HIDDEN
    assert "hunter" not in repr(settings)
    assert "hunter" not in problem("ssl.key.password=hunter2" * 10_000)


def test_a_key_in_the_place_of_its_files_name_is_not_said_again() -> None:
    said = problem(
        "listeners=SSL://:9093", "ssl.keystore.location=-----BEGIN PRIVATE KEY-----\nhunter2\n-----END"
    )
    assert said == "ssl.keystore.location is the name of a file, and what was given is PEM itself"
    chain = of("ssl.keystore.certificate.chain=-----BEGIN PRIVATE KEY-----\nhunter2\n-----END")
    assert chain.given["ssl.keystore.certificate.chain"].text == HIDDEN


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("~no-such-user/x", "there is no such user"), ("x\0y", "is not the name of a file")],
)
def test_what_names_no_file_is_one_sentence(name: str, sentence: str) -> None:
    assert sentence in problem("listeners=SSL://:9093", f"ssl.keystore.location={name}")


def test_ports_without_tls_can_be_closed_as_in_pulsar() -> None:
    network = of(*PULSAR, "brokerServicePort=", "webServicePort=", "webServicePortTls=8443").network
    assert (network.pulsar.port, network.pulsar.tls_port) == (None, 6651)
    assert (network.http_port, network.https_port) == (None, 8443)
    assert {one.port for one in network.every_listener(1)} == {9092, 6651, 8443}


def test_a_port_with_tls_may_be_nothing_as_pulsars_own_file_has_it() -> None:
    network = of("brokerServicePortTls=", "webServicePortTls=").network
    assert (network.pulsar.tls_port, network.https_port, network.pulsar.tls) == (None, None, None)


@pytest.mark.parametrize("key", ["brokerServicePort", "webServicePort"])
def test_a_protocol_without_any_port_is_refused(key: str) -> None:
    assert f"{key}Tls is not set" in problem(f"{key}=")
