"""A server of our own as a source of Pulsar's, whose protocol it speaks: logins, TLS, a source that begins anew."""

import shutil
from pathlib import Path
from typing import Any

import pulsar
import pytest

from magnetar.testing.certificates import Authority
from magnetar.testing.server import MagnetarProcess
from tests.integration.pulsar_auth.test_pulsar_auth import Guarded
from tests.integration.tls.secured import Secured

from .cloning import Cloning, clone
from .pulsar_topics import address, entries, publish, seen

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_login_is_shown_and_a_refused_one_is_one_sentence(server: MagnetarProcess, tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    with MagnetarProcess(settings=guarded.settings) as source:
        guarded.server = source
        client = guarded.client(pulsar.AuthenticationToken(guarded.token("alice")))
        topic = "guarded"
        producer: Any = client.create_producer(topic)
        producer.send(b"hello")
        client.close()
        token = tmp_path / "token"
        config = tmp_path / "client.conf"
        plugin = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        config.write_text(
            f"authPlugin={plugin}\nauthParams=file://{token}\nwebServiceUrl={source.http_url}\n"
        )
        token.touch(0o600)
        for text, fits in (("nonsense", False), (guarded.token("alice"), True)):
            token.write_text(text)
            code, said = Cloning(
                address(source.pulsar_url, topic), server, "--source-config", str(config)
            ).run()
            assert (code == 0) is fits, said
            assert text not in said
            if not fits:
                assert "refuses the login" in said
                assert said.count("\n") == 1
    ((message,),) = seen(server.pulsar_url, topic, [1])
    assert message.data == b"hello"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl program")
def test_a_source_with_tls_is_read_if_its_certificate_is_trusted(
    server: MagnetarProcess, tmp_path: Path
) -> None:
    for name in ("own", "other"):
        (tmp_path / name).mkdir()
    secured = Secured(Authority(tmp_path / "own"))
    other = Authority(tmp_path / "other", "Another authority")
    config = tmp_path / "client.conf"
    with MagnetarProcess(settings=secured.settings) as source:
        publish(source.pulsar_url, "over-tls", range(2000))
        for authority, fits in ((other, False), (secured.authority, True)):
            config.write_text(f"tlsTrustCertsFilePath={authority.certificate}\n")
            arguments = ("--source-config", str(config))
            if fits:
                clone(address(secured.pulsar_url, "over-tls"), server, *arguments)
                continue
            code, said = Cloning(address(secured.pulsar_url, "over-tls"), server, *arguments).run()
            assert code == 1
            assert "no connection with TLS" in said
            assert "Traceback" not in said
        assert entries(server.pulsar_url, "over-tls") == entries(source.pulsar_url, "over-tls")


def test_a_source_that_has_lost_messages_ends_the_copying(server: MagnetarProcess) -> None:
    with MagnetarProcess() as source:
        for number in range(3):  # so that it does not end where the new one will
            publish(source.pulsar_url, "lost", range(100 * number, 100 * number + 100))
            source.restart()
        place = address(source.pulsar_url, "lost")
        clone(place, server)
        copied = entries(server.pulsar_url, "lost")
        source.kill()
        shutil.rmtree(source.data_dir)
        source.start()
        publish(source.pulsar_url, "lost", range(10), batching_enabled=False)
        code, said = Cloning(place, server).run()
    assert code == 1
    assert "has lost messages" in said
    assert "Traceback" not in said
    assert entries(server.pulsar_url, "lost") == copied
