"""Which of several certificates the server shows a client: the one with the name that it asks for (SNI, RFC 6066).

The names of a certificate are its DNS names, or the CN of one that has none, as in Java.  `*.example.com` stands for
one more label; a whole name comes before it.  Of two certificates with one name the first in the store counts.  If
they have the same names and keys of different kinds, OpenSSL chooses between them by what the client can verify.  To
a client that asks for no name, or for an unknown one, the server shows the first certificate of the store, as in Java.

This module imports cryptography, so only a server with such a store imports it.
"""

import ssl
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from magnetar.base.errors import ConfigError

KEYS_MAX: Final = 100  # each costs memory for each listener, and time at the start

Names = frozenset[str]


def grouped(pairs: Sequence[tuple[str, str]]) -> list[tuple[Names, list[tuple[str, str]]]]:
    """Keys with their chains (PEM), those together whose certificates have the same names, in the given order.

    Raises:
        ConfigError: they cannot be used.  The text continues a sentence that begins with the file's name.
    """
    if len(pairs) > KEYS_MAX:
        raise ConfigError(f"has {len(pairs)} private keys, and at most {KEYS_MAX} can be used")
    groups: dict[Names, list[tuple[str, str]]] = {}
    for pair in pairs:
        groups.setdefault(_names_in(pair[1]), []).append(pair)
    return list(groups.items())


def by_name(contexts: Sequence[tuple[Names, ssl.SSLContext]]) -> ssl.SSLContext:
    """The first of these contexts, which gives a connection over to another one that has the name asked for."""
    first = contexts[0][1]
    found: dict[str, ssl.SSLContext | None] = {}  # None is `first`, which must not refer to itself
    for names, context in contexts:
        for name in names:
            found.setdefault(name, None if context is first else context)

    def choose(tls: ssl.SSLSocket | ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        if name is not None and (context := _asked_for(found, name)) is not None:
            tls.context = context

    _keep_quiet_of_undecodable_names()
    first.sni_callback = choose
    return first


def _asked_for(found: Mapping[str, ssl.SSLContext | None], name: str) -> ssl.SSLContext | None:
    name = name.lower().removesuffix(".")
    if name in found:
        return found[name]
    return found.get(f"*.{name.partition('.')[2]}")


def _names_in(chain: str) -> Names:
    """The names of the first certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(chain.encode())
        names = _alternatives(certificate) or [
            str(one.value) for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        ]
    except (ValueError, x509.DuplicateExtension, x509.UnsupportedGeneralNameType):
        raise ConfigError("has a certificate whose names cannot be read") from None
    return frozenset(one.lower() for one in names)


def _alternatives(certificate: x509.Certificate) -> list[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return extension.value.get_values_for_type(x509.DNSName)


def _keep_quiet_of_undecodable_names() -> None:
    """Print no traceback when a client asks for a name that is not ASCII.

    Python decodes the name before it calls `choose`, and gives the error to this hook alone.  The handshake fails, and
    the server logs it as every failed one.
    """
    if getattr(sys.unraisablehook, "func", None) is not _unless_undecodable:
        quiet = partial(_unless_undecodable, sys.unraisablehook)
        sys.unraisablehook = quiet


def _unless_undecodable(
    others: Callable[["sys.UnraisableHookArgs"], object], unraisable: "sys.UnraisableHookArgs"
) -> None:
    error = unraisable.exc_value
    if not (isinstance(error, UnicodeDecodeError) and unraisable.object in (None, error.object)):
        others(unraisable)
