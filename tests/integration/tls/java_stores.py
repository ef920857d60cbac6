"""Stores as operators of Kafka and of Pulsar make them, by Java's keytool: the steps of Kafka's own documentation."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.java_classes import classes

PASSWORD: Final = "store-secret"
KEY_PASSWORD: Final = "key-secret"  # where it is not the store's
# A JRE has keytool without javac, which compiles what runs many calls of it at once.
KEYTOOL: Final = shutil.which("keytool") if shutil.which("javac") else None
_IN_ONE: Final = Path(__file__).with_name("Keytool.java")
_EXPORTS: Final = "--add-exports=java.base/sun.security.tools.keytool=ALL-UNNAMED"

Call = tuple[Path, *tuple[str, ...]]  # a store, and the arguments for keytool


class JavaStores:
    """An authority, and stores in `folder` of a server and of a client that it has signed.

    Each of the two has its key in `<name>.jks`, with its chain and the authority; `trust.jks` has the authority alone.
    `old_server` and `old_trust` have the same in Java's old form, the key with a password of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls: list[Call] = []
        extensions = ("-ext", "bc:critical=ca:true", "-ext", "ku:critical=keyCertSign")
        authority = ("-dname", "CN=Java authority", *extensions)
        self._calls.append((self.file("ca"), "-genkeypair", "-alias", "ca", *EC, *authority))
        self.authority = folder / "ca.pem"
        exported = ("-exportcert", "-rfc", "-alias", "ca", "-file", str(self.authority))
        self._calls.append((self.file("ca"), *exported))
        self._trust(self.file("trust"))
        self.server = self._issue("server", "CN=Java server", "san=dns:localhost,ip:127.0.0.1")
        self.client = self._issue("client", "CN=Java client", "eku=clientAuth")
        self.trust = self.file("trust")
        self.old_trust = self._old_form("trust", "old-trust")
        own_password = ("-srcalias", "server", "-destkeypass", KEY_PASSWORD)
        self.old_server = self._old_form("server", "old-server", *own_password)
        self.pulsar = self._old_form("server", "old-pulsar", "-srcalias", "server")
        keytools(*self._calls)
        for old in (self.old_trust, self.old_server, self.pulsar):
            assert old.read_bytes()[:4] == b"\xfe\xed\xfe\xed"

    def file(self, name: str) -> Path:
        """Java of today writes PKCS12 whatever a file is called."""
        return self._folder / f"{name}.jks"

    def _issue(self, name: str, subject: str, extension: str) -> Path:
        store, request, answer = self.file(name), self._folder / f"{name}.csr", self._folder / f"{name}.pem"
        self._calls.append((store, "-genkeypair", "-alias", name, *EC, "-dname", subject))
        self._calls.append((store, "-certreq", "-alias", name, "-file", str(request)))
        signing = ("-gencert", "-rfc", "-alias", "ca", "-ext", extension)
        self._calls.append((self.file("ca"), *signing, "-infile", str(request), "-outfile", str(answer)))
        self._trust(store)
        self._calls.append((store, "-importcert", "-noprompt", "-alias", name, "-file", str(answer)))
        return store

    def _trust(self, store: Path) -> None:
        given = ("-importcert", "-noprompt", "-alias", "authority", "-file", str(self.authority))
        self._calls.append((store, *given))

    def _old_form(self, name: str, other: str, *arguments: str) -> Path:
        """A copy of a store, or of an entry of it, as Java 8 wrote it."""
        source = ("-srckeystore", str(self.file(name)), "-srcstorepass", PASSWORD)
        copied = ("-importkeystore", "-deststoretype", "JKS", *source, *arguments)
        self._calls.append((self.file(other), *copied))
        return self.file(other)


EC: Final = ("-keyalg", "EC", "-keysize", "256", "-validity", "30")


def keytools(*calls: Call) -> None:
    """Calls in one JVM, each after the one before; to start one for each takes a third of a second."""
    lines = "".join("\t".join([*arguments, *_opened(store)]) + "\n" for store, *arguments in calls)
    _run(["java", _EXPORTS, "-cp", str(classes(_IN_ONE, _EXPORTS)), _IN_ONE.stem], lines)


def keytool(store: Path, *arguments: str) -> None:
    """One call of the program itself, which has options for its JVM."""
    assert KEYTOOL is not None
    _run([KEYTOOL, *arguments, *_opened(store)])


def _opened(store: Path) -> tuple[str, ...]:
    return "-keystore", str(store), "-storepass", PASSWORD


def _run(command: Sequence[str], lines: str = "") -> None:
    done = subprocess.run(
        command, input=lines, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
