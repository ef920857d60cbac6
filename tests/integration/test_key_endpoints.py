"""JWK Sets at endpoints: certificates are verified, and nothing is followed, waited for or read without end."""

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.settings_oauth import KeySetSettings
from magnetar.base.settings_tls import Material
from magnetar.server import key_sets
from magnetar.testing.certificates import Authority


class Endpoint(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/elsewhere":
            self.send_response(302)
            self.send_header("Location", "/keys")
            self.end_headers()
            return
        self.send_response(200 if path != "/missing" else 404)
        self.end_headers()
        body = b"x" * (key_sets.SET_BYTES_MAX + 1) if path == "/large" else b"keys"
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["http", "https"])
def url(request: pytest.FixtureRequest, authority: Authority) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    if request.param == "https":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.issue("keys", hosts=["127.0.0.1"]).both)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"{request.param}://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def trusted(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")


def read(url: str, trusted: Path | None = None) -> bytes:
    material = None if trusted is None else Material("ssl.truststore.location", trusted)
    return key_sets.read_key_set(KeySetSettings("jwks.url", url, 1.0, 1.0, 1.0, material))


@pytest.mark.usefixtures("trusted")
def test_what_is_there_is_read(url: str) -> None:
    assert read(f"{url}/keys?secret=hunter2") == b"keys"


@pytest.mark.usefixtures("trusted")
@pytest.mark.parametrize(
    ("path", "reason"),
    [("missing", "HTTP 404"), ("elsewhere", "HTTP 302"), ("large", "more than 1048576 bytes")],
)
def test_what_cannot_be_used_is_said(url: str, path: str, reason: str) -> None:
    with pytest.raises(ConfigError) as said:
        read(f"{url}/{path}?secret=hunter2")
    assert str(said.value).startswith(f"jwks.url: {url}/{path} cannot be read: ")
    assert reason in str(said.value)
    assert "hunter2" not in str(said.value)


@pytest.mark.parametrize("url", ["https"], indirect=True)
def test_an_endpoint_that_no_authority_vouches_for_is_not_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path).certificate))
    with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
        read(f"{url}/keys")


@pytest.mark.parametrize("url", ["https"], indirect=True)
def test_an_endpoint_has_authorities_of_its_own(
    url: str, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then those of the machine do not count."""
    other = Authority(tmp_path).certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(other))
    assert read(f"{url}/keys", authority.certificate) == b"keys"
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate))
    with pytest.raises(ConfigError, match="CERTIFICATE_VERIFY_FAILED"):
        read(f"{url}/keys", other)
    named_otherwise = url.replace("127.0.0.1", "localhost")
    with pytest.raises(ConfigError, match="Hostname mismatch"):
        read(f"{named_otherwise}/keys", authority.certificate)
    with pytest.raises(ConfigError, match=r"^ssl\.truststore\.location .*none cannot be read"):
        read(f"{url}/keys", tmp_path / "none")


@pytest.mark.parametrize("url", ["http"], indirect=True)
def test_an_endpoint_that_takes_its_time_is_given_up(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "READ_S_MAX", -1.0)
    with pytest.raises(ConfigError, match="it takes longer than"):
        read(f"{url}/keys")
