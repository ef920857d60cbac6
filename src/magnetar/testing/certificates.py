"""Certificates for a test, made with the `openssl` program: an authority, and the certificates that it signs.

    authority = Authority(tmp_path, "Test authority")
    server = authority.issue("server", hosts=["localhost", "127.0.0.1"])
    with MagnetarProcess(settings={"listeners": "SSL://127.0.0.1:9093", "ssl.keystore.location": server.both}): ...

Keys use P-256, and are encrypted only if a password is given.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

DAYS: Final = 30
_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Issued:
    """Three PEM files: the key, the certificate, and both in one, as for Kafka's `ssl.keystore.location`."""

    key: Path
    certificate: Path
    both: Path


class Authority:
    """Signs certificates; `certificate` is its own."""

    def __init__(self, folder: Path, name: str = "Test authority") -> None:
        self._folder = folder / name.replace(" ", "-")
        self._folder.mkdir(parents=True)
        self.certificate = self._folder / "authority.pem"
        self._key = self._folder / "authority.key"
        _openssl(
            *_request(name, self._key, self.certificate, ""),
            *(
                "-addext",
                "basicConstraints=critical,CA:TRUE",
                "-addext",
                "keyUsage=critical,keyCertSign,cRLSign",
            ),
        )

    def issue(self, name: str, *, hosts: Sequence[str] = (), password: str = "", subject: str = "") -> Issued:
        """A certificate for the common name `name`, for a client, or for a server with the names `hosts`.

        `subject` replaces that name, in openssl's form: `/O=Magnetar/OU=People/CN=Dave`.
        """
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        issued = Issued(folder / "key.pem", folder / "certificate.pem", folder / "both.pem")
        alternatives = ["-addext", f"subjectAltName={','.join(map(_alternative, hosts))}"] if hosts else []
        _openssl(
            *_request(name, issued.key, issued.certificate, password, subject),
            *("-CA", str(self.certificate), "-CAkey", str(self._key)),
            *("-addext", "basicConstraints=critical,CA:FALSE", *alternatives),
        )
        issued.both.write_text(issued.key.read_text() + issued.certificate.read_text())
        return issued


def _request(name: str, key: Path, certificate: Path, password: str, subject: str = "") -> list[str]:
    secrecy = ["-passout", f"pass:{password}"] if password else ["-noenc"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    return ["req", "-x509", *_KEY, *secrecy, *files, "-days", str(DAYS), "-subj", subject or f"/CN={name}"]


def _alternative(host: str) -> str:
    try:
        return f"IP:{ip_address(host)}"
    except ValueError:
        return f"DNS:{host}"


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)  # noqa: S603, S607 - a test's own words
