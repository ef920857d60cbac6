"""Logins by tokens of identity providers, from the settings and the keys that they name.

It imports the libraries of cryptography only for a server that accepts such tokens: the import takes a tenth of a
second.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from magnetar.base.clock import Clock
from magnetar.base.settings_oauth import KeySetSettings, OAuthSettings
from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.model import Exchange

log = logging.getLogger(__name__)


class Keys(Protocol):
    """The part of a `KeptKeySet` that this module needs: the type itself would import the libraries."""

    async def start(self) -> None: ...

    def find(self, key_id: str | None, algorithm: str) -> Any: ...

    def close(self) -> None: ...


class KeptKeySets:
    """The key sets of a server: it keeps one of each, however many settings name it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: dict[KeySetSettings, Keys] = {}

    async def get(self, settings: KeySetSettings) -> Keys:
        """The key set of these settings; the first call reads it.  If its endpoint does not answer, the set is still
        empty.

        Raises:
            ConfigError: the file of keys cannot be used, or the file of the authorities for its endpoint.
        """
        from magnetar.server.key_sets import KeptKeySet

        kept = self._kept.get(settings)
        if kept is None:
            kept = self._kept[settings] = KeptKeySet(settings, self._clock)
            await kept.start()
        return kept

    def close(self) -> None:
        """Stop reading the key sets."""
        for kept in self._kept.values():
            kept.close()


class BearerLogins:
    """The logins by OAUTHBEARER of all listeners."""

    def __init__(self, clock: Clock, key_sets: KeptKeySets) -> None:
        self._clock = clock
        self._key_sets = key_sets
        self._begin: dict[OAuthSettings, Callable[[], Exchange]] = {}

    async def prepare(self, listeners: Iterable[SaslSettings]) -> None:
        """Read the keys of those `listeners` that accept OAUTHBEARER.

        Raises:
            ConfigError: a file of keys cannot be used.
        """
        wanted = [one.oauth for one in listeners if one.oauth is not None]
        if not wanted:
            return
        from magnetar.broker.security.oauth import BearerTokens

        for settings in wanted:
            if settings.keys is None:
                log.warning(
                    f"listener {settings.listener} takes unsigned tokens: the server believes the name that a client"
                    " gives"
                )
            keys = None if settings.keys is None else await self._key_sets.get(settings.keys)
            self._begin[settings] = BearerTokens(settings, keys, self._clock).begin

    def of(self, settings: OAuthSettings) -> Callable[[], Exchange]:
        """The function that begins a login, for a listener that was prepared."""
        return self._begin[settings]
