"""The credentials of replicators' configurations: read from key stores, and then kept in memory.

A configuration without credentials needs no key store.  A start or a restart of a replicator reads the credentials
again, because the key store may have new ones.
"""

import logging
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.key_stores import KeyStores
from magnetar.broker.jobs.plugin_calls import answered, found_store
from magnetar.broker.policy.model import ReplicatorConfig
from magnetar.replicators.key_store import KeyPlace

log = logging.getLogger(__name__)

_T = TypeVar("_T")
Credentials = Mapping[str, Any] | None


class ReplicatorKeys:
    """See the module's text.  What asks a key store raises InvalidReplicator, and MetadataError if the key store is
    ours.
    """

    def __init__(self, stores: KeyStores, clock: Clock) -> None:
        self._stores = stores
        self._clock = clock
        self._tasks = Tasks(log)
        self._known: dict[KeyPlace, Credentials] = {}

    async def load(self) -> None:
        await self._stores.load()

    def store_name(self, name: str) -> str:
        """The name by which a key store is known here."""
        return self._stores.name_of(name)

    def knows(self, namespace: str, config: ReplicatorConfig) -> bool:
        return _place(namespace, config) in self._known

    async def keep(self, namespace: str, config: ReplicatorConfig, auth_param: Mapping[str, Any]) -> None:
        """Give the user's `auth_param` to a key store."""
        store = found_store(self._stores, config.key_store)
        if config.keys:
            await self._answer(config, store.store(_place(namespace, config), auth_param))

    async def of(self, namespace: str, config: ReplicatorConfig) -> Credentials:
        """The credentials of a configuration; None if it has none."""
        place = _place(namespace, config)
        if place not in self._known:
            await self.ask(namespace, config)
        return self._known[place]

    async def ask(self, namespace: str, config: ReplicatorConfig) -> None:
        """Read the credentials from the key store again."""
        found: Credentials = None
        place = _place(namespace, config)
        if config.keys:
            store = found_store(self._stores, config.key_store)
            found = await self._answer(config, store.fetch(place))
        self._known[place] = found

    async def delete(self, namespace: str, config: ReplicatorConfig) -> None:
        place = _place(namespace, config)
        if config.keys:
            store = found_store(self._stores, config.key_store)
            await self._answer(config, store.delete(place))
        self._known.pop(place, None)

    async def delete_unused(self, namespace: str, config: ReplicatorConfig) -> None:
        """Delete credentials that nothing needs; a failure is logged."""
        try:
            await self.delete(namespace, config)
        except BrokerError as error:
            log.warning("credentials of %s that nothing uses are still there: %s", namespace, error)

    async def _answer(self, config: ReplicatorConfig, call: Coroutine[Any, Any, _T]) -> _T:
        return await answered(self._clock, self._tasks, config.key_store, call)


def _place(namespace: str, config: ReplicatorConfig) -> KeyPlace:
    return KeyPlace(namespace, *config.region, config.keys)
