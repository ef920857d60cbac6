"""Logins by OAUTHBEARER: what each listener's settings say, with the keys that they name.

Imports the libraries of cryptography only for a listener that takes such logins: that takes a tenth of a second.
"""

import logging
from collections.abc import Callable, Iterable

from magnetar.base.clock import Clock
from magnetar.base.settings_oauth import KeySetSettings, OAuthSettings
from magnetar.base.settings_sasl import SaslSettings
from magnetar.broker.security.model import Exchange

log = logging.getLogger(__name__)


class BearerLogins:
    """Those of all listeners; a set of keys is kept once, however many of them use it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begin: dict[OAuthSettings, Callable[[], Exchange]] = {}
        self._closing: list[Callable[[], None]] = []

    async def prepare(self, listeners: Iterable[SaslSettings]) -> None:
        """Read the keys of `listeners`, as far as they take OAUTHBEARER.

        Raises:
            ConfigError: a file of keys cannot be used.
        """
        wanted = [one.oauth for one in listeners if one.oauth is not None]
        if not wanted:
            return
        from magnetar.broker.security.oauth import BearerTokens
        from magnetar.server.key_sets import KeptKeySet

        kept: dict[KeySetSettings, KeptKeySet] = {}
        for settings in wanted:
            if settings.keys is None:
                log.warning(
                    f"listener {settings.listener} takes tokens that nothing signs: its clients are who they say"
                )
            elif settings.keys not in kept:
                keys = kept[settings.keys] = KeptKeySet(settings.keys, self._clock)
                self._closing.append(keys.close)
                await keys.start()
            found = None if settings.keys is None else kept[settings.keys]
            self._begin[settings] = BearerTokens(settings, found, self._clock).begin

    def of(self, settings: OAuthSettings) -> Callable[[], Exchange]:
        """What begins a login of a listener that was prepared."""
        return self._begin[settings]

    def close(self) -> None:
        for close in self._closing:
            close()
