"""Sealing of secrets that the server has to store, such as those that a pipeline shows to its object store.

    1.<id of the key, 8 hexadecimal digits>.<base64 of the nonce (12 bytes), and AES-256-GCM's ciphertext and tag>

A sealed text is bound to the thing that it belongs to: sealed text of one pipeline does not open as another one's.
Ciphers get a key that is derived from the server's key (HMAC-SHA256), whatever form that has.  The id, derived once
more, tells which key has sealed a text, and nothing of the key.  A server may also know its former key, which opens
texts and never seals.

The library of ciphers takes a tenth of a second to import: only a server with something to seal does.
"""

import asyncio
import base64
import binascii
import hmac
from importlib import import_module
from typing import Any, Final, NamedTuple

from magnetar.base.secret import secret_bytes

KEY_BYTES_MIN: Final = 32
_VERSION: Final = "1"
_LABEL: Final = b"magnetar: sealed secrets"
_ID_LABEL: Final = b"id"
_DIGEST: Final = "sha256"
_NONCE_BYTES: Final = 12
_LIBRARY: Final = "cryptography.hazmat.primitives.ciphers.aead"


class CannotOpen(Exception):
    """A sealed text cannot be opened; the text is half a sentence, which has nothing of it."""


class Opened(NamedTuple):
    """`is_old`: the key from before has opened it, so it is to be sealed anew."""

    data: bytes
    is_old: bool


class _Key:
    def __init__(self, material: bytes) -> None:
        self._derived = hmac.digest(material, _LABEL, _DIGEST)
        self.id = hmac.digest(self._derived, _ID_LABEL, _DIGEST)[:4].hex()

    def cipher(self) -> Any:
        return import_module(_LIBRARY).AESGCM(self._derived)


class Sealer:
    """See the module's text.  Keys have `KEY_BYTES_MIN` bytes at least; an empty `old_key` is none."""

    def __init__(self, key: bytes, old_key: bytes = b"") -> None:
        self._key = _Key(key)
        self._old_key = _Key(old_key) if old_key else None

    async def prepare(self) -> None:
        """To be awaited before the first use: the library is imported beside the loop."""
        await asyncio.to_thread(import_module, _LIBRARY)

    def seal(self, of: str, data: bytes) -> str:
        """`of` names what the data are of, and is needed to open them."""
        nonce = secret_bytes(_NONCE_BYTES)
        sealed = nonce + self._key.cipher().encrypt(nonce, data, of.encode())
        return f"{_VERSION}.{self._key.id}.{base64.b64encode(sealed).decode()}"

    def open(self, of: str, sealed: str) -> Opened:
        """What was sealed of this.

        Raises:
            CannotOpen: with another key, or of something else, or it was changed since.
        """
        version, _, rest = sealed.partition(".")
        key_id, _, text = rest.partition(".")
        if version != _VERSION:
            raise CannotOpen("it was sealed in a way that this version does not know")
        is_old = self._old_key is not None and key_id == self._old_key.id != self._key.id
        key = self._old_key if is_old else self._key
        assert key is not None, "there is an old key if it is that one's"
        if key_id != key.id:
            raise CannotOpen(
                f"it was sealed with another key (of the id {key_id[:8]}, and not {self._key.id})"
            )
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            raise CannotOpen("it is damaged") from None
        invalid = import_module("cryptography.exceptions").InvalidTag
        try:
            opened = key.cipher().decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], of.encode())
        except (invalid, ValueError):
            raise CannotOpen("it is damaged, or was sealed for something else") from None
        return Opened(opened, is_old)
