"""The port of a key store: it keeps the credentials by which replicators log in at their targets.

A user names a key store and gives it an `auth_param`, which only this store understands: the credentials themselves, or
where they are.  Namespaces, answers and logs have neither.  A replicator gets what `fetch` returns when it is started.

Other packages add key stores by entry points of the group `magnetar.keystores`.  Each is a class without arguments.
The server calls the methods in its event loop: one that blocks belongs on a thread (`asyncio.to_thread`).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from magnetar.base.errors import ConfigError

GROUP: Final = "magnetar.keystores"


class KeyStoreError(ConfigError):
    """A key store does not take an `auth_param`, or has no credentials: one sentence without anything secret."""


class KeyPlace(NamedTuple):
    """Which replicators credentials are for.  `namespace` is `tenant/namespace`; `id` is a new one each time that a
    user adds a configuration, so that the credentials of the one before are there until they are no longer used.
    """

    namespace: str
    type: str
    region: str
    id: str


class KeyStore(Protocol):
    """See the module's text.  All methods raise KeyStoreError."""

    async def store(self, place: KeyPlace, auth_param: Mapping[str, Any]) -> None:
        """Keep what a user has given for a place."""
        ...

    async def fetch(self, place: KeyPlace) -> Mapping[str, Any]:
        """The credentials of a place."""
        ...

    async def delete(self, place: KeyPlace) -> None:
        """Forget what a place has; nothing happens if it has nothing."""
        ...
