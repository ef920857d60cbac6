"""Delegation tokens (KIP-48): all of them in memory, and each in the metadata store.

    /delegation-tokens/secret       32 bytes, made once: what the salts of names are made from
    /delegation-tokens/tokens/<id>  {"v": 1, "owner": "alice", "requester": "bob", "renewers": ["carol"],
                                     "issued_ms": n, "expires_ms": n, "max_ms": n, "check": hex,
                                     "keys": {"SCRAM-SHA-256": [hex, hex], "SCRAM-SHA-512": [hex, hex]}}

All named are users.  A client logs in by a token's id and, as its password, the HMAC of the id under the secret key of
the settings, in base64.  The HMAC is not stored, and nothing that is stored gives it away.  `keys` are SCRAM's stored
key and server key.  `check` is the HMAC's digest: it says whether the token was made under the secret key that is set
now.  A token of another secret key stays stored until it expires, but lets no client in, as if it did not exist.

A change takes effect once it is durable.  The salt of a token is made like that of a name that does not exist, so the
two look alike.

A connection ends with its token, also if its owner or a renewer expires it by hand.

The wall clock decides whether a token is valid.  The server removes tokens by the time that does not jump ahead.
"""

import asyncio
import hashlib
import hmac
import json
import logging
from base64 import b64encode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from magnetar.base.clock import Clock
from magnetar.base.randomness import new_uuid
from magnetar.base.secret import secret_bytes
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.base.thread_time import counted
from magnetar.base.upkeep import Upkeep
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import USER, Authenticated, DelegationToken, Principal
from magnetar.broker.security.scram import ITERATIONS_MIN, ScramBook, ScramCredential
from magnetar.broker.security.scram_credentials import ALGORITHMS
from magnetar.broker.security.withdrawals import Withdrawals
from magnetar.metadata.store import MUST_NOT_EXIST, Delete, MetadataStore

log = logging.getLogger(__name__)

_SECRET: Final = "/delegation-tokens/secret"  # noqa: S105  a path
_ROOT: Final = "/delegation-tokens/tokens/"
_SECRET_BYTES: Final = 32
_SALT_BYTES: Final = 16
_HMAC: Final = "sha512"
_REMOVED_AT_ONCE: Final = 512

Keys = tuple[bytes, bytes]  # SCRAM's stored key and server key


class DelegationTokens:
    """See the module's text.  `expiry_now_ms` is the time by which things expire."""

    def __init__(
        self,
        metadata: MetadataStore,
        clock: Clock,
        settings: DelegationTokenSettings,
        expiry_now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.lock = asyncio.Lock()  # held from a look at what there is to the end of its change
        self._metadata = metadata
        self._clock = clock
        self._expiry_now_ms = expiry_now_ms
        self._secret = secret_bytes(_SECRET_BYTES)
        self._tokens: dict[str, DelegationToken] = {}
        self._keys: dict[str, Mapping[str, Keys]] = {}  # of each token, by mechanism
        self._ids: dict[bytes, str] = {}  # by the check of the HMAC
        self._counts: Counter[Principal] = Counter()  # of tokens, by owner
        self.withdrawals = Withdrawals()
        self._foreign: dict[str, int] = {}  # made under another secret key, and when each of them expires

    @property
    def are_enabled(self) -> bool:
        return bool(self.settings.secret_key)

    async def load(self) -> None:
        if not self.are_enabled:
            return
        stored = await self._metadata.get(_SECRET)
        if stored is None:
            await self._metadata.put(_SECRET, self._secret, MUST_NOT_EXIST)
        else:
            self._secret = stored.value
        for path, one in await self._metadata.scan(_ROOT):
            token_id = path.removeprefix(_ROOT)
            content = json.loads(one.value)
            token = _decode(token_id, content, self._hmac_of(token_id))
            if bytes.fromhex(content["check"]) == _check_of(token.hmac):
                self._keep(token, {name: _keys(pair) for name, pair in content["keys"].items()})
            else:
                self._foreign[token_id] = token.expires_ms
        if self._foreign:
            log.warning(
                "%d delegation tokens were made with another secret key: no client can log in with them",
                len(self._foreign),
            )

    def start(self, upkeep: Upkeep) -> None:
        if self.are_enabled:
            upkeep.every(self.settings.check_interval_ms / 1000, "delegation tokens", self.remove_expired)

    # --- what there is -----------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._tokens)

    def all(self) -> Sequence[DelegationToken]:
        return list(self._tokens.values())

    def count_of(self, owner: Principal) -> int:
        return self._counts[owner]

    def find(self, token_hmac: bytes) -> DelegationToken | None:
        token_id = self._ids.get(_check_of(token_hmac))
        return None if token_id is None else self._tokens[token_id]

    # --- changes: MetadataError when they cannot be stored -----------------------------------------------------------

    def new_id(self) -> str:
        """As Kafka's: a UUID, which as an argument of a command is taken for no option."""
        while True:
            token_id = urlsafe_b64encode(new_uuid().bytes).rstrip(b"=").decode()
            if not token_id.startswith("-"):
                return token_id

    async def add(
        self,
        token_id: str,
        owner: Principal,
        requester: Principal,
        renewers: Sequence[Principal],
        issued_ms: int,
        expires_ms: int,
        max_ms: int,
    ) -> DelegationToken:
        token_hmac = self._hmac_of(token_id)
        token = DelegationToken(
            token_id, owner, requester, tuple(renewers), issued_ms, expires_ms, max_ms, token_hmac
        )
        # Thousands of digests, as many as a client computes: on a thread.
        keys = await asyncio.to_thread(
            counted(lambda: {mechanism: self._derived_keys(mechanism, token) for mechanism in ALGORITHMS})
        )
        await self._metadata.put(_ROOT + token_id, _encode(token, keys), MUST_NOT_EXIST)
        self._keep(token, keys)
        return token

    async def change_expiry(self, token: DelegationToken, expires_ms: int) -> None:
        changed = replace(token, expires_ms=expires_ms)
        await self._metadata.put(_ROOT + token.token_id, _encode(changed, self._keys[token.token_id]))
        self._tokens[token.token_id] = changed

    async def remove(self, token_ids: Sequence[str]) -> None:
        await self._metadata.commit([Delete(_ROOT + token_id) for token_id in token_ids])
        for token_id in token_ids:
            self._foreign.pop(token_id, None)
            token = self._tokens.pop(token_id, None)
            if token is not None:
                del self._keys[token_id], self._ids[_check_of(token.hmac)]
                self._counts[token.owner] -= 1
                if not self._counts[token.owner]:
                    del self._counts[token.owner]
        self.withdrawals.happened()

    async def remove_expired(self) -> None:
        async with self.lock:
            now_ms = self._expiry_now_ms()
            expired = [token_id for token_id, one in self._tokens.items() if one.has_expired(now_ms)]
            expired += [token_id for token_id, ends_ms in self._foreign.items() if ends_ms < now_ms]
            for start in range(0, len(expired), _REMOVED_AT_ONCE):
                await self.remove(expired[start : start + _REMOVED_AT_ONCE])
        if expired:
            log.info("the server has removed %d expired delegation tokens", len(expired))

    def _keep(self, token: DelegationToken, keys: Mapping[str, Keys]) -> None:
        self._tokens[token.token_id] = token
        self._keys[token.token_id] = keys
        self._ids[_check_of(token.hmac)] = token.token_id
        self._counts[token.owner] += 1

    # --- logins ------------------------------------------------------------------------------------------------------

    def book(self, mechanism: str) -> ScramBook:
        """The tokens, as names that log in by a mechanism."""
        return ScramBook(partial(self._credential_of, mechanism), self._owner_of, self._let_in)

    def _credential_of(self, mechanism: str, token_id: str) -> ScramCredential:
        salt = self._salt(mechanism, token_id)
        nothing = hmac.digest(self._secret, f"key {mechanism} {token_id}".encode(), ALGORITHMS[mechanism])
        keys = nothing, nothing  # also made where they are not needed: it takes its time
        if self._good(token_id) is not None:
            keys = self._keys[token_id][mechanism]
        return ScramCredential(salt, ITERATIONS_MIN, *keys)

    def _owner_of(self, token_id: str) -> str:
        token = self._tokens.get(token_id)
        return "" if token is None else token.owner.name

    def _let_in(self, token_id: str, data: bytes) -> Authenticated:
        token = self._good(token_id)
        if token is None:
            raise AuthenticationFailed("its delegation token is not good any more")
        # A wall clock that is behind makes no session last longer than its token ever could.
        left_ms = min(token.expires_ms - self._clock.now_ms(), token.max_ms - token.issued_ms)
        return Authenticated(
            token.owner,
            data,
            self._clock.monotonic() + left_ms / 1000,
            by_token=True,
            still_holds=partial(self._tokens.__contains__, token_id),
        )

    def _good(self, token_id: str) -> DelegationToken | None:
        token = self._tokens.get(token_id)
        return None if token is None or token.has_expired(self._clock.now_ms()) else token

    # --- what follows from secrets -----------------------------------------------------------------------------------

    def _hmac_of(self, token_id: str) -> bytes:
        return hmac.digest(self.settings.secret_key.encode(), token_id.encode(), _HMAC)

    def _salt(self, mechanism: str, token_id: str) -> bytes:
        return hmac.digest(self._secret, f"salt {mechanism} {token_id}".encode(), "sha256")[:_SALT_BYTES]

    def _derived_keys(self, mechanism: str, token: DelegationToken) -> Keys:
        algorithm, salt = ALGORITHMS[mechanism], self._salt(mechanism, token.token_id)
        salted = hashlib.pbkdf2_hmac(algorithm, b64encode(token.hmac), salt, ITERATIONS_MIN)
        made = ScramCredential.of(algorithm, salt, ITERATIONS_MIN, salted)
        return made.stored_key, made.server_key


def _check_of(token_hmac: bytes) -> bytes:
    return hashlib.sha256(token_hmac).digest()


def _encode(token: DelegationToken, keys: Mapping[str, Keys]) -> bytes:
    content = {
        "v": 1,
        "owner": token.owner.name,
        "requester": token.requester.name,
        "renewers": [one.name for one in token.renewers],
        "issued_ms": token.issued_ms,
        "expires_ms": token.expires_ms,
        "max_ms": token.max_ms,
        "check": _check_of(token.hmac).hex(),
        "keys": {mechanism: [key.hex() for key in pair] for mechanism, pair in keys.items()},
    }
    return json.dumps(content).encode()


def _decode(token_id: str, content: Mapping[str, Any], token_hmac: bytes) -> DelegationToken:
    owner, requester, *renewers = (
        Principal(USER, name) for name in (content["owner"], content["requester"], *content["renewers"])
    )
    issued_ms, expires_ms, max_ms = (content[name] for name in ("issued_ms", "expires_ms", "max_ms"))
    return DelegationToken(
        token_id, owner, requester, tuple(renewers), issued_ms, expires_ms, max_ms, token_hmac
    )


def _keys(pair: Sequence[str]) -> Keys:
    stored_key, server_key = map(bytes.fromhex, pair)
    return stored_key, server_key
