"""The folder `security`, which a server with `secure` creates in its data directory (`base/settings_secure.py`).

| file | has |
|---|---|
| `ca.key`, `ca.pem` | the authority that signs only the server's certificate |
| `token.key` | the secret that signs tokens |
| `admin.token` | the administrator's token |
| `server.pem` | the server's key and certificate |
| `client.properties`, `client.conf`, `context.toml` | the settings with which Kafka's, Pulsar's and our tools connect |
| `worker.toml` | the settings with which the worker connects |

The first start creates the files of the first three rows in `security.new`, and renames that folder once all of it is
on disk.  So no later start uses files of an interrupted one.  These files never change; if one is missing, the server
refuses to start.  It creates a new certificate, with a new key, if its names change, and before the old one expires.
Each start writes the settings, because they depend on the ports.

Only the server's account may read the files (0600, the folder 0700).
"""

import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import jwt
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from jwt.types import Options

from magnetar.base.clock import Clock
from magnetar.base.errors import ConfigError
from magnetar.base.logging import get_logger
from magnetar.base.private import SECRET_FOLDER_MODE, SECRET_MODE, sync_folder, write_secret
from magnetar.base.secret import secret_bytes
from magnetar.base.settings_secure import (
    ADMINISTRATOR,
    CA_FILE,
    KEY_FILE,
    SERVER_FILE,
    TOKEN_FILE,
)

log = get_logger(__name__)

CA_KEY: Final = "ca.key"

_SECRET_BYTES: Final = 32  # HS256
_ANY_TIME: Final[Options] = {
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_aud": False,
}
_AUTHORITY_DAYS: Final = 30 * 365
_CERTIFICATE_DAYS: Final = 397  # the most that browsers and Apple's libraries accept
_RENEW_BEFORE: Final = timedelta(days=30)
_EARLIER: Final = timedelta(days=1)  # certificates are valid since then: a client's clock may be slow


class SecurityFolder:
    """The folder of a server that clients reach by `names`, which are host names and numeric addresses."""

    def __init__(self, folder: Path, names: Iterable[str], clock: Clock) -> None:
        self.folder = folder
        self._names = list(dict.fromkeys(names))
        self._clock = clock

    def prepare(self) -> None:
        """Create the files that are not there at a first start, and check the others.

        Raises:
            ConfigError: a file of an earlier start is missing, or cannot be used.
            OSError
        """
        if not self.folder.exists() or not any(self.folder.iterdir()):
            self._make()
        for name in (CA_FILE, KEY_FILE, TOKEN_FILE):
            if not (self.folder / name).is_file():
                raise self._unusable(name, "is missing")
        self.folder.chmod(SECRET_FOLDER_MODE)  # only after the folder is known to be ours
        for left in self.folder.glob(".*.new"):  # of an interrupted write
            left.unlink()
        self._check_token()
        for file in sorted(self.folder.iterdir()):
            if file.is_file() and file.stat().st_mode & 0o077:
                file.chmod(SECRET_MODE)
                if file.name != CA_FILE:
                    log.warning(
                        "other accounts could read a secret; if one of them may have read it, move the folder away:"
                        " the server makes new secrets",
                        file=file,
                    )
        self.renew()

    def renew(self) -> None:
        """Issue a new certificate if the old one has other names or expires soon.  Raises ConfigError, OSError."""
        authority = self._authority()
        if not authority.not_valid_before_utc <= self._now() <= authority.not_valid_after_utc:
            log.warning(
                "by this machine's clock the authority is not valid now, and clients will refuse the server: set the"
                " clock right; if it was wrong at the first start, move the folder away: the server makes new keys and"
                " tokens",
                file=self.folder / CA_FILE,
                good_from=authority.not_valid_before_utc.isoformat(),
                good_until=authority.not_valid_after_utc.isoformat(),
            )
        wanted = [_alternative(name) for name in self._names]
        file = self.folder / SERVER_FILE
        if _is_good(file, authority, wanted, self._now()):
            return
        try:
            key = load_pem_private_key((self.folder / CA_KEY).read_bytes(), None)
        except FileNotFoundError:
            raise ConfigError(
                f"the server needs a new certificate, and {self.folder / CA_KEY} is missing, which signs it: put it"
                " back"
            ) from None
        except (ValueError, TypeError):
            raise ConfigError(f"{self.folder / CA_KEY} has no key in it: put it back") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != authority.public_key():
            raise ConfigError(
                f"{self.folder / CA_KEY} is not the key of {self.folder / CA_FILE}: put both back"
            )
        write_secret(file, _issue(key, authority, wanted, self._now()))
        sync_folder(self.folder)
        log.info("the server has a new certificate", file=file, names=", ".join(self._names))

    def write(self, files: Mapping[str, str]) -> None:
        """Write these files, if they have changed.  Raises OSError."""
        for name, text in files.items():
            file = self.folder / name
            if not file.exists() or file.read_bytes() != text.encode():
                write_secret(file, text.encode())
        sync_folder(self.folder)

    def token(self) -> str:
        """The administrator's token."""
        return (self.folder / TOKEN_FILE).read_text().strip()

    def _make(self) -> None:
        fresh = self.folder.with_name(f"{self.folder.name}.new")
        if fresh.is_symlink():  # a link by another program: its target is not ours
            fresh.unlink()
        elif fresh.exists():
            shutil.rmtree(fresh)  # of an interrupted start
        fresh.mkdir(mode=SECRET_FOLDER_MODE)
        secret = secret_bytes(_SECRET_BYTES)
        key, certificate = _make_authority(self._now())
        made = {
            CA_KEY: key,
            CA_FILE: certificate,
            KEY_FILE: secret,
            TOKEN_FILE: _token(ADMINISTRATOR, secret),
        }
        for name, data in made.items():
            write_secret(fresh / name, data)
        sync_folder(fresh)
        fresh.rename(self.folder)
        sync_folder(self.folder.parent)

    def _check_token(self) -> None:
        """Raise ConfigError unless the token is the administrator's and the key has signed it: the server would
        refuse it.
        """
        secret = (self.folder / KEY_FILE).read_bytes()
        if len(secret) < _SECRET_BYTES:
            raise self._unusable(KEY_FILE, f"has {len(secret)} bytes, and a key {_SECRET_BYTES}")
        try:
            claims = jwt.decode((self.folder / TOKEN_FILE).read_bytes().strip(), secret, ["HS256"], _ANY_TIME)
            subject = claims.get("sub")
        except jwt.PyJWTError:
            subject = None
        if subject != ADMINISTRATOR:
            raise self._unusable(
                TOKEN_FILE, f"is no token of {ADMINISTRATOR} that {KEY_FILE} beside it has signed"
            )

    def _unusable(self, name: str, why: str) -> ConfigError:
        return ConfigError(
            f"{self.folder / name} {why}: put it back, or move {self.folder} away and the next start makes keys,"
            " certificates and tokens anew"
        )

    def _authority(self) -> x509.Certificate:
        file = self.folder / CA_FILE
        try:
            return x509.load_pem_x509_certificate(file.read_bytes())
        except ValueError:
            raise ConfigError(f"{file} has no certificate in it: put it back") from None

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.now_ms() // 1000, UTC)


def _token(role: str, secret: bytes) -> bytes:
    return jwt.encode({"sub": role}, secret, "HS256").encode()


def _alternative(name: str) -> x509.GeneralName:
    """A name or an address in the form for a certificate.  Raises ConfigError."""
    try:
        return x509.IPAddress(ip_address(name.partition("%")[0]))
    except ValueError:
        pass
    try:
        return x509.DNSName(name.encode("idna").decode())
    except UnicodeError:
        raise ConfigError(f"{name[:200]!r} is no name that a certificate can have") from None


def _is_good(file: Path, authority: x509.Certificate, wanted: list[x509.GeneralName], now: datetime) -> bool:
    """Whether a file has a certificate of the authority with exactly these names that does not expire soon, and a
    key.
    """
    try:
        found = x509.load_pem_x509_certificate(file.read_bytes())
        load_pem_private_key(file.read_bytes(), None)
        found.verify_directly_issued_by(authority)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    in_time = found.not_valid_before_utc <= now <= found.not_valid_after_utc - _RENEW_BEFORE
    return in_time and set(names) == set(wanted)


def _make_authority(now: datetime) -> tuple[bytes, bytes]:
    """A new key, and its self-signed certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(f"Magnetar {secret_bytes(4).hex()}")  # unique, because a client may trust several
    builder = _certificate(name, name, key.public_key(), now, _AUTHORITY_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
    return _pem(key), builder.sign(key, SHA256()).public_bytes(Encoding.PEM)


def _issue(
    signer: ec.EllipticCurvePrivateKey,
    authority: x509.Certificate,
    names: list[x509.GeneralName],
    now: datetime,
) -> bytes:
    """A new key and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _certificate(_named("magnetar"), authority.subject, key.public_key(), now, _CERTIFICATE_DAYS)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    return _pem(key) + builder.sign(signer, SHA256()).public_bytes(Encoding.PEM)


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
