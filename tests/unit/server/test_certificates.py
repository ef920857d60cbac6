"""Which certificates can be used, what is said of the others, and what becomes of a change."""

import asyncio
import logging
import os
import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import ClientCertificates, Given, Material, TlsSettings
from magnetar.server.certificates import Certificates, make_context
from magnetar.testing.certificates import Authority
from tests.unit.server.handshakes import handshake, shown

BOTH = ("TLSv1.2", "TLSv1.3")


def stored(file: Path) -> TlsSettings:
    pem = Material("ssl.keystore.location", file)
    return TlsSettings(pem, pem, None, ClientCertificates.NONE, BOTH)


def test_a_file_with_both_and_files_of_their_own(authority: Authority) -> None:
    issued = authority.issue("server", hosts=["localhost"])
    assert shown(make_context(stored(issued.both)), authority.certificate) == "server"
    apart = replace(
        stored(issued.both),
        chain=Material("tlsCertificateFilePath", issued.certificate),
        key=Material("tlsKeyFilePath", issued.key),
    )
    assert shown(make_context(apart), authority.certificate) == "server"


@pytest.mark.parametrize("separator", ["\n", " ", "\\n"])
def test_pem_in_a_setting_may_be_one_line(authority: Authority, separator: str) -> None:
    issued = authority.issue("server", hosts=["localhost"])
    chain = issued.certificate.read_text() + authority.certificate.read_text()
    settings = TlsSettings(
        Material("ssl.keystore.certificate.chain", None, separator.join(chain.splitlines())),
        Material("ssl.keystore.key", None, separator.join(issued.key.read_text().splitlines())),
        Material("ssl.truststore.certificates", None, separator.join(chain.splitlines())),
        ClientCertificates.NONE,
        BOTH,
    )
    context = make_context(settings)
    assert shown(context, authority.certificate) == "server"
    assert len(context.get_ca_certs()) == 1
    assert issued.key.read_text().splitlines()[1] not in repr(settings)


def test_a_key_that_is_encrypted(authority: Authority) -> None:
    secret = stored(authority.issue("secret", hosts=["localhost"], password="hunter2").both)
    with pytest.raises(ConfigError, match=r"the key in .*both.pem is encrypted: set ssl.key.password"):
        make_context(replace(secret, password_setting="ssl.key.password"))
    with pytest.raises(ConfigError, match=r"is encrypted$"):
        make_context(secret)
    with pytest.raises(ConfigError, match=r"cannot be decrypted with ssl\.key\.password") as wrong:
        make_context(replace(secret, password="hunter3", password_setting="ssl.key.password"))
    assert "hunter" not in str(wrong.value)
    right = replace(secret, password="hunter2", password_setting="ssl.key.password")
    assert shown(make_context(right), authority.certificate) == "secret"
    assert "hunter" not in repr(right)


def test_what_cannot_be_used_is_one_sentence(authority: Authority, tmp_path: Path) -> None:
    issued, other = authority.issue("one"), authority.issue("two")
    broken = tmp_path / "broken.pem"
    cases = [
        (stored(tmp_path / "missing"), "ssl.keystore.location .*missing cannot be read: No such file"),
        (stored(tmp_path), "cannot be read: Is a directory"),
        (stored(issued.key), "key.pem has no certificate in PEM form"),
        (stored(issued.certificate), "certificate.pem has no private key in PEM form"),
        (
            replace(stored(issued.both), key=Material("k", other.key)),
            "key in k .* is not that of the first certificate",
        ),
        (
            replace(stored(issued.both), trusted=Material("t", issued.key)),
            "t .*key.pem has no certificate in PEM",
        ),
        (stored(broken), "broken.pem has no certificate and key that can be used"),
        (
            replace(stored(issued.both), trusted=Material("t", broken)),
            "has a certificate that cannot be read",
        ),
    ]
    broken.write_text(
        issued.key.read_text() + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    )
    for settings, sentence in cases:
        with pytest.raises(ConfigError, match=sentence) as said:
            make_context(settings)
        assert "\n" not in str(said.value)
    store = tmp_path / "keystore"
    store.write_bytes(bytes(2 << 20))
    with pytest.raises(ConfigError, match="is larger than"):
        make_context(stored(store))


def test_versions_and_clients_certificates(authority: Authority) -> None:
    settings = replace(stored(authority.issue("one").both), trusted=Material("t", authority.certificate))
    context = make_context(settings)
    assert context.verify_mode is ssl.CERT_NONE
    assert (context.minimum_version, context.maximum_version) == (
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    )
    for wanted, mode in (
        (ClientCertificates.REQUESTED, ssl.CERT_OPTIONAL),
        (ClientCertificates.REQUIRED, ssl.CERT_REQUIRED),
    ):
        assert make_context(replace(settings, client_certificates=wanted)).verify_mode is mode
    alone = make_context(replace(settings, versions=("TLSv1.3",)))
    assert alone.minimum_version == alone.maximum_version == ssl.TLSVersion.TLSv1_3


def test_suites_of_a_list_alone_are_spoken_in_its_order(authority: Authority) -> None:
    one, other, third = (
        f"ECDHE-ECDSA-AES{rest}" for rest in ("128-SHA256", "256-GCM-SHA384", "128-GCM-SHA256")
    )
    settings = stored(authority.issue("one", hosts=["localhost"]).both)
    settings = replace(settings, versions=("TLSv1.2",), ciphers=Given(f"{one}:{other}", "ssl.cipher.suites"))
    context = make_context(settings)
    trusting = ssl.create_default_context(cafile=str(authority.certificate))
    for has, spoken in (("ALL", one), (f"{other}:{one}", one), (other, other)):
        trusting.set_ciphers(has)
        assert (handshake(context, trusting).cipher() or ("",))[0] == spoken
    trusting.set_ciphers(third)
    with pytest.raises(ssl.SSLError):
        handshake(context, trusting)


@pytest.mark.parametrize("listed", ["NO-SUCH-SUITE", "ECDHE-ECDSA-AES128-SHA256:NO-SUCH-SUITE"])
def test_a_suite_that_openssl_does_not_take_is_said(authority: Authority, listed: str) -> None:
    settings = replace(stored(authority.issue("one").both), ciphers=Given(listed, "ssl.cipher.suites"))
    with pytest.raises(ConfigError, match=r"^ssl\.cipher\.suites has NO-SUCH-SUITE, which this machine"):
        make_context(settings)


def test_one_certificate_for_listeners_that_are_alike(authority: Authority) -> None:
    settings = stored(authority.issue("one").both)
    certificates = Certificates()
    assert not certificates
    assert certificates.of(settings) is certificates.of(replace(settings))
    assert certificates.of(replace(settings, versions=("TLSv1.3",))) is not certificates.of(settings)
    assert len(certificates) == 2


def test_a_change_is_used_once_it_has_stood(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        file = tmp_path / "both.pem"
        file.write_text(authority.issue("one", hosts=["localhost"]).both.read_text())
        certificates = Certificates()
        one = certificates.of(stored(file))
        certificates.of(replace(stored(file), versions=("TLSv1.3",)))
        first = one.context
        for _ in range(3):
            await certificates.refresh()
        assert one.context is first
        file.write_text("half of")
        await certificates.refresh()
        file.write_text(authority.issue("two", hosts=["localhost"]).both.read_text())
        await certificates.refresh()
        assert one.context is first, "it has not stood yet"
        await certificates.refresh()
        assert shown(one.context, authority.certificate) == "two"
        assert shown(first, authority.certificate) == "one"

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_a_change_that_cannot_be_used_is_said_once(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        file = tmp_path / "both.pem"
        content = authority.issue("one", hosts=["localhost"]).both.read_text()
        file.write_text(content)
        certificates = Certificates()
        one = certificates.of(stored(file))
        certificates.of(replace(stored(file), versions=("TLSv1.3",)))
        first = one.context
        os.unlink(file)
        for _ in range(5):
            await certificates.refresh()
        assert one.context is first
        file.write_text("nonsense")
        for _ in range(5):
            await certificates.refresh()
        assert one.context is first
        file.write_text(content)
        for _ in range(2):
            await certificates.refresh()
        assert one.context is not first

    with caplog.at_level(logging.WARNING):
        asyncio.run(scenario())
    assert len(caplog.records) == 2
    assert "cannot be read: No such file" in caplog.records[0].getMessage()
    assert "new connections get the certificate that was there before" in caplog.text


def test_a_pipe_without_a_writer_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match=r"ssl.keystore.location .*/pipe is not a file$"):
        make_context(stored(tmp_path / "pipe"))
