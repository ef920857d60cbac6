"""The certificate of a listener with TLS, and the authorities of its clients' certificates; read again if files
change.

Keys and certificates are PEM, or in stores of PKCS #12 (`server/pkcs12.py`) or of Java's old form (`server/jks.py`),
which become PEM in memory: OpenSSL gets files that exist only there.  Of a store with several keys a client is shown
the certificate with the name that it asks for (`server/server_names.py`).

If files change (`server/watched_files.py`), open connections keep the old certificate.  If the new files cannot be
used, the server logs that once and keeps the old certificate.  At its start, the server refuses to start instead.
"""

import asyncio
import logging
import os
import re
import ssl
import stat
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, TypeVar

from magnetar.base.errors import ConfigError
from magnetar.base.settings_tls import PEM, ClientCertificates, Given, Material, TlsSettings
from magnetar.server import jks
from magnetar.server.jks import MAGIC as JKS_MAGIC
from magnetar.server.watched_files import WatchedFiles

log = logging.getLogger(__name__)

Read = TypeVar("Read")
KeyAndChain = tuple[str, str]  # a key, and its certificate with those that have signed it, as PEM

FILE_BYTES_MAX: Final = 1 << 20  # hundreds of certificates

_JCEKS: Final = b"\xce\xce\xce\xce"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CERTIFICATE: Final = re.compile("-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----")
_KEY: Final = re.compile("-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----")
_BLOCK: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([^-]*)(-----END [A-Z0-9 ]+-----)")
_VERIFY: Final = {
    ClientCertificates.NONE: ssl.CERT_NONE,
    ClientCertificates.REQUESTED: ssl.CERT_OPTIONAL,
    ClientCertificates.REQUIRED: ssl.CERT_REQUIRED,
}


class Certificate:
    """The certificate of one listener.  `context` is for the connections that it accepts next."""

    def __init__(self, settings: TlsSettings) -> None:
        """Raises ConfigError: a file cannot be used."""
        self._settings = settings
        sources = (settings.chain, settings.key, settings.trusted)
        self._files = WatchedFiles(one.file for one in sources if one and one.file)
        self.context = make_context(settings)

    async def refresh(self) -> bool:
        """Check the files, off the event loop; whether they have changed, and are used from now on.

        Raises:
            ConfigError: they have changed, and cannot be used; raised once for each change.
        """
        if not await self._files.have_changed():
            return False
        self.context = await asyncio.to_thread(make_context, self._settings)
        return True


class Certificates:
    """The certificates of all listeners; listeners with equal settings share one."""

    def __init__(self) -> None:
        self._by_settings: dict[TlsSettings, Certificate] = {}

    def __len__(self) -> int:
        return len(self._by_settings)

    def of(self, settings: TlsSettings) -> Certificate:
        """Raises ConfigError: a file cannot be used."""
        found = self._by_settings.get(settings)
        if found is None:
            found = self._by_settings[settings] = Certificate(settings)
        return found

    async def refresh(self) -> None:
        """Check all files; log each change and each problem once, however many listeners use the file."""
        problems: set[str] = set()
        changed: set[str] = set()
        for settings, one in list(self._by_settings.items()):
            try:
                if await one.refresh():
                    changed.add(_place(settings.chain))
            except ConfigError as error:
                problems.add(str(error))
        for problem in sorted(problems):
            log.warning("%s; new connections get the certificate that was there before", problem)
        for place in sorted(changed):
            log.info("new connections get the certificate that is now in %s", place)


def make_context(settings: TlsSettings) -> ssl.SSLContext:
    """The TLS context for the connections of a listener.

    Raises:
        ConfigError: a file is missing, unreadable or of another form, key and certificate do not belong together, or
            OpenSSL does not have a suite.
    """
    pairs, password = _pairs(settings)
    if len(pairs) == 1:
        return _context_of(settings, pairs, password)
    from magnetar.server.server_names import by_name, grouped

    groups = _of_store(settings.chain, lambda: grouped(pairs))
    return by_name([(names, _context_of(settings, group, "")) for names, group in groups])


def _context_of(settings: TlsSettings, pairs: Sequence[KeyAndChain], password: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    # No renegotiation: a client could repeat handshakes within one connection, only to keep the server busy.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    if settings.ciphers.text:
        _choose(context, settings.ciphers)
    for key, chain in reversed(pairs):  # OpenSSL uses the one of a kind of key that it got last
        _load_chain(context, settings, key, chain, password)
    if settings.trusted is not None:
        _trust(context, settings.trusted)
    context.verify_mode = _VERIFY[settings.client_certificates]
    return context


def client_context(trusted: Material) -> ssl.SSLContext:
    """The TLS context for a connection to a server whose certificate `trusted` vouches for; no other authority
    counts.

    Raises:
        ConfigError: the certificates cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _trust(context, trusted)
    return context


def _choose(context: ssl.SSLContext, ciphers: Given) -> None:
    """Set these suites of TLS 1.2, in this order.  Raises ConfigError for unknown ones, which OpenSSL by itself
    ignores.
    """
    try:
        context.set_ciphers(ciphers.text)
        had = {one["name"] for one in context.get_ciphers()}
    except ssl.SSLError:  # OpenSSL knows none of them
        had = set()
    for one in ciphers.text.split(":"):
        if one not in had:
            raise ConfigError(f"{ciphers.name} has {one}, which this machine's OpenSSL does not take")


def _trust(context: ssl.SSLContext, trusted: Material) -> None:
    # Each certificate in the file is trusted by itself, as in Java's stores, even if another certificate has signed
    # it.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    data = _read(trusted)
    if _is_store(trusted, data):
        text = _of_store(trusted, lambda: _trust_store(data, trusted.password))
    else:
        text = _pem(trusted, data, _CERTIFICATE, "certificate")
    try:
        context.load_verify_locations(cadata=text)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{_place(trusted)} has a certificate that cannot be read ({_reason(error)})"
        ) from None


def _load_chain(context: ssl.SSLContext, settings: TlsSettings, key: str, chain: str, password: str) -> None:
    with ExitStack() as stack:
        try:
            # Without `password`, OpenSSL would ask for it at the terminal.
            context.load_cert_chain(_path_of(chain, stack), _path_of(key, stack), password=lambda: password)
        except ssl.SSLError as error:
            if error.reason == "KEY_VALUES_MISMATCH":
                raise ConfigError(
                    f"the key in {_place(settings.key)} is not that of the first certificate in"
                    f" {_place(settings.chain)}"
                ) from None
            if password:
                raise ConfigError(
                    f"the key in {_place(settings.key)} cannot be decrypted with {settings.password_setting}"
                ) from None
            raise ConfigError(
                f"{_place(settings.chain)} has no certificate and key that can be used ({_reason(error)})"
            ) from None


def _pairs(settings: TlsSettings) -> tuple[list[KeyAndChain], str]:
    """The keys with their chains as PEM, and the password of the key, which is empty if no key is encrypted.  PEM has
    one key, stores have one or several.
    """
    data = _read(settings.chain)
    if _is_store(settings.chain, data):
        key_password = Given(settings.password, settings.password_setting)
        return _of_store(settings.chain, lambda: _key_store(data, settings.chain.password, key_password)), ""
    chain = _pem(settings.chain, data, _CERTIFICATE, "certificate")
    if settings.key != settings.chain:
        data = _read(settings.key)
    key = _pem(settings.key, data, _KEY, "private key")
    if "ENCRYPTED" not in key:
        return [(key, chain)], ""
    if not settings.password:
        hint = f": set {settings.password_setting}" if settings.password_setting else ""
        raise ConfigError(f"the key in {_place(settings.key)} is encrypted{hint}")
    return [(key, chain)], settings.password


def _is_store(material: Material, data: bytes) -> bool:
    """Whether the data are a store, by their first bytes: files and settings may say JKS for a store of PKCS #12,
    too.

    Raises:
        ConfigError: the form is not the one that the settings say, or is not supported.
    """
    place, kind, password = _place(material), material.kind, material.password
    if data.startswith(_JCEKS):
        raise ConfigError(
            f"{place} is a store in Java's form JCEKS, which is not served: convert it with keytool -importkeystore"
            " -srckeystore OLD -srcstoretype JCEKS -destkeystore NEW -deststoretype PKCS12"
        )
    is_pkcs12 = data[:1] == b"\x30" and data[1:2] >= b"\x80"  # no text continues like this
    is_store = is_pkcs12 or data.startswith(JKS_MAGIC)
    if not is_store and material.file is not None and b"-----BEGIN" not in data:
        raise ConfigError(f"{place} is neither PEM nor a store of PKCS12 or JKS")
    if kind.text and is_store is (kind.text == PEM):
        form = "PEM" if not is_store else "binary, like a store of PKCS12" if is_pkcs12 else "a store of JKS"
        raise ConfigError(
            f"{place} is {form}, and {f'{kind.name} says {kind.text}' if kind.name else 'has to be PEM'}"
        )
    if password.text and not is_store:
        raise ConfigError(f"{password.name} is for a store, and {place} is PEM: leave it out")
    return is_store


def _of_store(material: Material, read: Callable[[], Read]) -> Read:
    try:
        return read()
    except ConfigError as error:
        raise ConfigError(f"{_place(material)} {error}") from None


def _trust_store(data: bytes, password: Given) -> str:
    if data.startswith(JKS_MAGIC):
        return jks.read_trust_store(data, password)
    from magnetar.server import pkcs12

    return pkcs12.read_trust_store(data, password)


def _key_store(data: bytes, password: Given, key_password: Given) -> list[KeyAndChain]:
    if data.startswith(JKS_MAGIC):
        return jks.read_key_store(data, password, key_password)
    from magnetar.server import pkcs12

    if key_password.text not in ("", password.text):
        raise ConfigError(
            f"is a store of PKCS12, which has one password, and {key_password.name} is not {password.name}: keep that"
        )
    return pkcs12.read_key_store(data, password)


def _read(material: Material) -> bytes:
    if material.file is None:
        return _with_lines(material.text).encode("ascii", "ignore")
    try:
        # To open a pipe without a writer would otherwise wait for ever.
        with open(
            material.file, "rb", opener=lambda file, flags: os.open(file, flags | os.O_NONBLOCK)
        ) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise ConfigError(f"{_place(material)} is not a file")
            data = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{_place(material)} cannot be read: {error.strerror}") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"{_place(material)} is larger than {FILE_BYTES_MAX} bytes")
    return data


def _pem(material: Material, data: bytes, wanted: re.Pattern[str], what: str) -> str:
    text = data.decode("ascii", "ignore")
    if wanted.search(text) is None:
        raise ConfigError(f"{_place(material)} has no {what} in PEM form")
    return text


def _with_lines(text: str) -> str:
    """PEM with its usual line ends: in a properties file it may all be in one line."""
    return "".join(
        "\n".join([begin, *re.findall(".{1,64}", re.sub(r"\s|\\n", "", content)), end, ""])
        for begin, content, end in _BLOCK.findall(text)
    )


def _path_of(text: str, stack: ExitStack) -> str:
    """A path by which OpenSSL can read a text that exists only in memory."""
    descriptor = os.memfd_create("pem")
    stack.callback(os.close, descriptor)
    os.write(descriptor, text.encode())
    return f"/proc/self/fd/{descriptor}"


def _place(material: Material) -> str:
    return material.setting if material.file is None else f"{material.setting} {material.file}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
