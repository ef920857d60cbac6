"""The passwords of Pulsar's and HTTP's clients while the server runs: it reads their file again when the file
changes.

A change applies to later logins; it does not affect connected clients.  If the new file cannot be used, the server
logs that once and keeps the old passwords.  This module imports the libraries for passwords, which takes a tenth of a
second, so only a server with passwords imports it.
"""

import asyncio
import logging
from collections.abc import Mapping

from magnetar.base.errors import ConfigError
from magnetar.base.key_source import FILE_BYTES_MAX, key_file, read_key
from magnetar.base.settings_authentication import PASSWORDS
from magnetar.broker.security.passwords import Passwords, parse_passwords
from magnetar.server.watched_files import WatchedFiles

log = logging.getLogger(__name__)


class PasswordFile:
    """The file that the setting `basicAuthConf` names; `passwords` identifies clients."""

    def __init__(self, given: str, environment: Mapping[str, str]) -> None:
        """Raises ConfigError if the file cannot be used."""
        self._given = given
        self._environment = environment
        file = key_file(PASSWORDS, given, environment)
        self._files = WatchedFiles([] if file is None else [file])
        self.passwords = Passwords(self._read())

    async def refresh(self) -> None:
        """Check the file, and use its passwords if it has changed."""
        if not await self._files.have_changed():
            return
        try:
            self.passwords.hashes = await asyncio.to_thread(self._read)
        except ConfigError as error:
            log.warning("%s; the passwords that were there before stay", error)
        else:
            log.info("%s has changed: clients log in with what it has now", PASSWORDS)

    def _read(self) -> dict[str, str]:
        data = read_key(PASSWORDS, self._given, self._environment, FILE_BYTES_MAX)
        try:
            return parse_passwords(data)
        except ConfigError as error:
            raise ConfigError(f"{PASSWORDS}: {error}") from None
