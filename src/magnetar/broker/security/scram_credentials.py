"""The passwords of SCRAM's users, as far as a server keeps them: all in memory, each in the metadata store.

    /scram/secret                          32 bytes, made once: the salts of users that do not exist come from it
    /scram/credentials/<mechanism>/<user>  {"v": 1, "salt": hex, "iterations": n, "stored_key": hex, "server_key": hex}

The mechanism is its name for clients, the user's name is written as hexadecimal digits of UTF-8.  A change counts for
logins that begin once it is durable.  A connection ends when the credential is deleted by whose mechanism its client
has logged in; it does not end when the credential gets another password.
"""

import asyncio
import hmac
import json
from bisect import bisect
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from magnetar.base.secret import secret_bytes
from magnetar.base.settings_sasl import SCRAM_SHA_256, SCRAM_SHA_512
from magnetar.broker.security.model import USER, Authenticated, Principal
from magnetar.broker.security.scram import ITERATIONS_MIN, ScramBook, ScramCredential
from magnetar.broker.security.withdrawals import Withdrawals
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, MetadataStore, Put

ALGORITHMS: Final[Mapping[str, str]] = {SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"}
_SECRET: Final = "/scram/secret"  # noqa: S105  a path
_ROOT: Final = "/scram/credentials/"
_SECRET_BYTES: Final = 32
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"

Key = tuple[str, str]  # mechanism, user
_Shape = tuple[
    int, int, bool
]  # iterations, bytes of salt, whether these are digits and letters, as Java's tools make
_JAVAS: Final[_Shape] = (ITERATIONS_MIN, 25, True)


class ScramCredentials:
    """See the module's text."""

    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._by_key: dict[Key, ScramCredential] = {}
        self._secret = secret_bytes(_SECRET_BYTES)
        self._shapes: dict[str, list[tuple[bytes, _Shape]]] = {}  # of each mechanism, in order
        self.withdrawals = Withdrawals()
        self.lock = asyncio.Lock()  # held from a look at what there is to the end of its change

    async def load(self) -> None:
        stored = await self._metadata.get(_SECRET)
        if stored is None:
            await self._metadata.put(_SECRET, self._secret, MUST_NOT_EXIST)
        else:
            self._secret = stored.value
        for path, one in await self._metadata.scan(_ROOT):
            mechanism, _, name = path.removeprefix(_ROOT).partition("/")
            self._by_key[mechanism, bytes.fromhex(name).decode()] = _decode(one.value)
        self._order()

    def find(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._by_key.get((mechanism, user))

    def users(self) -> list[str]:
        return sorted({user for _, user in self._by_key})

    async def change(self, deleted: Sequence[Key], put: Mapping[Key, ScramCredential]) -> None:
        """All of it in one step; MetadataError when it cannot be stored."""
        await self._metadata.commit(
            [
                *(Delete(_path(key)) for key in deleted),
                *(Put(_path(key), _encode(credential)) for key, credential in put.items()),
            ]
        )
        for key in deleted:
            self._by_key.pop(key, None)
        self._by_key.update(put)
        self._order()
        if deleted:
            self.withdrawals.happened()

    def book(self, mechanism: str) -> ScramBook:
        """The users that log in by a mechanism."""
        return ScramBook(
            partial(self._find_or_decoy, mechanism),
            lambda user: user * ((mechanism, user) in self._by_key),  # the same steps for all
            lambda user, data: Authenticated(
                Principal(USER, user), data, still_holds=lambda: (mechanism, user) in self._by_key
            ),
        )

    def _find_or_decoy(self, mechanism: str, user: str) -> ScramCredential:
        decoy = self._decoy(mechanism, user)  # also for those that need none: it takes its time
        return self._by_key.get((mechanism, user), decoy)

    # --- users that do not exist -------------------------------------------------------------------------------------

    def _decoy(self, mechanism: str, user: str) -> ScramCredential:
        """What a user would have: it looks like that of another one, which stays the same as long as that is there."""
        place = self._derived("place", mechanism, user)
        shapes = self._shapes.get(mechanism)
        shape = shapes[bisect(shapes, (place,)) % len(shapes)][1] if shapes else _JAVAS
        iterations, size, is_text = shape
        salt = b"".join(self._derived(f"salt {part}", mechanism, user) for part in range(size // 32 + 1))[
            :size
        ]
        if is_text:
            salt = bytes(ord(_DIGITS[byte % len(_DIGITS)]) for byte in salt)
        algorithm = ALGORITHMS[mechanism]
        key = hmac.digest(self._secret, f"key {mechanism} {user}".encode(), algorithm)
        return ScramCredential(salt, iterations, key, key)

    def _derived(self, use: str, mechanism: str, user: str) -> bytes:
        return hmac.digest(self._secret, f"{use} {mechanism} {user}".encode(), "sha256")

    def _order(self) -> None:
        shapes: dict[str, list[tuple[bytes, _Shape]]] = {}
        for (mechanism, user), one in self._by_key.items():
            is_text = all(byte in _DIGITS.encode() for byte in one.salt)
            shape = (one.iterations, len(one.salt), is_text)
            shapes.setdefault(mechanism, []).append((self._derived("place", mechanism, user), shape))
        self._shapes = {mechanism: sorted(found) for mechanism, found in shapes.items()}


def _path(key: Key) -> str:
    mechanism, user = key
    return f"{_ROOT}{mechanism}/{user.encode().hex()}"


def _encode(one: ScramCredential) -> bytes:
    content = {
        "v": 1,
        "salt": one.salt.hex(),
        "iterations": one.iterations,
        "stored_key": one.stored_key.hex(),
        "server_key": one.server_key.hex(),
    }
    return json.dumps(content).encode()


def _decode(value: bytes) -> ScramCredential:
    content = json.loads(value)
    keys = (bytes.fromhex(content[name]) for name in ("stored_key", "server_key"))
    return ScramCredential(bytes.fromhex(content["salt"]), content["iterations"], *keys)
