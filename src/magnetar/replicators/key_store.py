"""The port of a key store: it keeps the credentials by which replicators log in at their targets, and the secrets of
functions.

A user names a key store and gives it an `auth_param`, which only this store understands: the credentials themselves, or
the place where they are.  Namespaces, answers and logs contain neither.  A replicator that starts gets what `fetch`
returns.  A secret of a function has a place of its own: its `auth_param` has the secret's name as the only key, and so
has what `fetch` returns.

Other packages add key stores by entry points of the group `magnetar.keystores`.  Each is a class without arguments.
The server calls the methods in its event loop, so they must do blocking work on a thread (`asyncio.to_thread`).
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol

from magnetar.base.errors import ConfigError

GROUP: Final = "magnetar.keystores"
FUNCTION_TYPE: Final = "function"  # of the places of functions' secrets


class KeyStoreError(ConfigError):
    """A key store refuses an `auth_param`, or has no credentials: one sentence without any secret."""


class KeyPlace(NamedTuple):
    """The replicators that use some credentials; or a function that uses a secret, with `FUNCTION_TYPE` as the type and
    its name as the region.  `namespace` is `tenant/namespace`.  `id` is new each time that a user gives them, so that
    the previous ones exist until nothing uses them.
    """

    namespace: str
    type: str
    region: str
    id: str


class KeyStore(Protocol):
    """See the module's text.  All methods raise KeyStoreError."""

    async def store(self, place: KeyPlace, auth_param: Mapping[str, Any]) -> None:
        """Keep the `auth_param` of a user for a place."""
        ...

    async def fetch(self, place: KeyPlace) -> Mapping[str, Any]:
        """The credentials of a place."""
        ...

    async def delete(self, place: KeyPlace) -> None:
        """Forget the credentials of a place; does nothing if there are none."""
        ...
