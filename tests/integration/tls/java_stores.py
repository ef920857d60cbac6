"""Stores as operators of Kafka and of Pulsar make them, by Java's keytool: the steps of Kafka's own documentation."""

import shutil
import subprocess
from pathlib import Path
from typing import Final

PASSWORD: Final = "store-secret"
KEY_PASSWORD: Final = "key-secret"  # where it is not the store's
KEYTOOL: Final = shutil.which("keytool")


class JavaStores:
    """An authority, and stores in `folder` of a server and of a client that it has signed.

    Each of the two has its key in `<name>.jks`, with its chain and the authority; `trust.jks` has the authority alone.
    `old_server` and `old_trust` have the same in Java's old form, the key with a password of its own.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        authority = [
            "-dname",
            "CN=Java authority",
            "-ext",
            "bc:critical=ca:true",
            "-ext",
            "ku:critical=keyCertSign",
        ]
        keytool(self.file("ca"), "-genkeypair", "-alias", "ca", *EC, *authority)
        self.authority = folder / "ca.pem"
        keytool(self.file("ca"), "-exportcert", "-rfc", "-alias", "ca", "-file", str(self.authority))
        self._trust(self.file("trust"))
        self.server = self.issue("server", "CN=Java server", "san=dns:localhost,ip:127.0.0.1")
        self.client = self.issue("client", "CN=Java client", "eku=clientAuth")
        self.trust = self.file("trust")
        self.old_trust = old_form(self.trust)
        self.old_server = old_form(self.server, "-srcalias", "server", "-destkeypass", KEY_PASSWORD)
        self.pulsar = old_form(self._copy("server", "pulsar"), "-srcalias", "server")

    def file(self, name: str) -> Path:
        """Java of today writes PKCS12 whatever a file is called."""
        return self._folder / f"{name}.jks"

    def issue(self, name: str, subject: str, extension: str) -> Path:
        store, request, answer = self.file(name), self._folder / f"{name}.csr", self._folder / f"{name}.pem"
        keytool(store, "-genkeypair", "-alias", name, *EC, "-dname", subject)
        keytool(store, "-certreq", "-alias", name, "-file", str(request))
        signing = ["-gencert", "-rfc", "-alias", "ca", "-ext", extension]
        keytool(self.file("ca"), *signing, "-infile", str(request), "-outfile", str(answer))
        self._trust(store)
        keytool(store, "-importcert", "-noprompt", "-alias", name, "-file", str(answer))
        return store

    def _copy(self, name: str, other: str) -> Path:
        return Path(shutil.copy(self.file(name), self.file(other)))

    def _trust(self, store: Path) -> None:
        keytool(store, "-importcert", "-noprompt", "-alias", "authority", "-file", str(self.authority))


EC: Final = ("-keyalg", "EC", "-keysize", "256", "-validity", "30")


def old_form(store: Path, *arguments: str) -> Path:
    """A copy of a store, or of an entry of it, as Java 8 wrote it."""
    old = store.with_name(f"old-{store.name}")
    source = ["-srckeystore", str(store), "-srcstorepass", PASSWORD]
    keytool(old, "-importkeystore", "-deststoretype", "JKS", *source, *arguments)
    assert old.read_bytes()[:4] == b"\xfe\xed\xfe\xed"
    return old


def keytool(store: Path, *arguments: str) -> None:
    assert KEYTOOL is not None
    command = [KEYTOOL, *arguments, "-keystore", str(store), "-storepass", PASSWORD]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
