"""All key stores: ours, and those of other packages by an entry point.

Sealed credentials are stored by place::

    /replicator-keys/<tenant>/<namespace>/<type>/<region>/<id>    what `security/sealing.py` makes of the JSON object

The secrets of functions are there, too (`KeyPlace`).  What is sealed is bound to its place.  A start with
`secrets.old.key` seals it anew with the current key.
"""

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.base.plugins import installed
from magnetar.base.replicator_variables import SETTING, ReplicatorVariables
from magnetar.base.secret import secret_bytes
from magnetar.base.settings_sealing import OLD_SECRETS_KEY
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.security.sealing import CannotOpen, Sealer
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore
from magnetar.replicators.key_store import FUNCTION_TYPE, GROUP, KeyPlace, KeyStore, KeyStoreError

log = logging.getLogger(__name__)

ROOT: Final = "/replicator-keys/"
SEALED: Final = "sealed"
ENVIRONMENT: Final = "environment"
# As PIP-18 names the default one.
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "": SEALED,
    "org.apache.pulsar.replicator.auth.DefaultAuthParamKeyStore": SEALED,
}


class SealedKeyStore:
    """Keeps credentials sealed in the metadata store.  A user gives the credentials themselves."""

    def __init__(self, metadata: MetadataStore, keys: PipelineKeys) -> None:
        """Without a key, nothing that is sealed outlives this process."""
        self._metadata = metadata
        self._sealer = Sealer(keys.sealing or secret_bytes(32), keys.old_sealing)

    async def load(self) -> None:
        """Seal anew what the old key has sealed; MetadataError."""
        found = await self._metadata.scan(ROOT)
        if found:
            await self._sealer.prepare()
        for path, stored in found:
            place = KeyPlace(*path.removeprefix(ROOT).rsplit("/", 3))
            try:
                opened = self._sealer.open(_seal(place), stored.value.decode())
            except CannotOpen as error:
                log.warning("the server cannot open the credentials of %s: %s", _words(place), error)
                continue
            if opened.is_old:
                await self._metadata.put(path, self._sealer.seal(_seal(place), opened.data).encode())

    async def store(self, place: KeyPlace, auth_param: Mapping[str, Any]) -> None:
        await self._sealer.prepare()
        sealed = self._sealer.seal(_seal(place), json.dumps(auth_param).encode())
        await self._metadata.put(_path(place), sealed.encode())

    async def fetch(self, place: KeyPlace) -> Mapping[str, Any]:
        stored = await self._metadata.get(_path(place))
        if stored is None:
            raise KeyStoreError(f"there are no credentials of {_words(place)}: give them again")
        await self._sealer.prepare()
        try:
            opened = self._sealer.open(_seal(place), stored.value.decode())
        except CannotOpen as error:
            raise KeyStoreError(
                f"the credentials of {_words(place)} cannot be opened: {error}; give that key as {OLD_SECRETS_KEY} at"
                " a start, or give them again"
            ) from None
        credentials: Mapping[str, Any] = json.loads(opened.data)
        return credentials

    async def delete(self, place: KeyPlace) -> None:
        await self._metadata.commit([Delete(_path(place), ANY_VERSION)])


class EnvironmentKeyStore:
    """Takes credentials from variables of the server's environment.  A user gives, for each, the name of a variable:
    `{"sasl.password": "ORDERS_PASSWORD"}`.  Which ones a namespace may name is a setting.
    """

    def __init__(
        self, names: KeyStore, environment: Mapping[str, str], variables: ReplicatorVariables
    ) -> None:
        """`names` keeps which variables a place has named."""
        self._names = names
        self._environment = environment
        self._variables = variables

    async def store(self, place: KeyPlace, auth_param: Mapping[str, Any]) -> None:
        self._resolved(place, auth_param)
        await self._names.store(place, auth_param)

    async def fetch(self, place: KeyPlace) -> Mapping[str, Any]:
        return self._resolved(place, await self._names.fetch(place))

    async def delete(self, place: KeyPlace) -> None:
        await self._names.delete(place)

    def _resolved(self, place: KeyPlace, names: Mapping[str, Any]) -> Mapping[str, str]:
        found = {}
        for key, variable in names.items():
            if not isinstance(variable, str):
                raise KeyStoreError(
                    f"auth-param: {key[:100]} must be the name of a variable of the environment"
                )
            # First of all, so that no answer tells which variables there are.
            if not self._variables.allow(place.namespace, variable):
                raise KeyStoreError(
                    f"the namespace {place.namespace} may not use the variable {variable[:100]}: {SETTING} lists"
                    " those that it may"
                )
            if variable not in self._environment:
                raise KeyStoreError(f"the server's environment has no variable {variable[:100]}")
            found[key] = self._environment[variable]
        return found


class KeyStores:
    """All key stores, by name."""

    def __init__(
        self, sealed: SealedKeyStore, environment: Mapping[str, str], variables: ReplicatorVariables
    ) -> None:
        self._sealed = sealed
        self._stores: dict[str, KeyStore] = {
            SEALED: sealed,
            ENVIRONMENT: EnvironmentKeyStore(sealed, environment, variables),
        }

    async def load(self) -> None:
        """Make ready what is stored here; MetadataError."""
        await self._sealed.load()

    def name_of(self, name: str) -> str:
        """The name by which a key store is known here."""
        return _OTHER_NAMES.get(name, name)

    def find(self, name: str) -> KeyStore:
        """The key store of this name; one of another package is imported when it is used first.

        Raises:
            KeyStoreError: there is none, or it cannot be imported.
        """
        found = self._stores.get(name)
        if found is not None:
            return found
        others = installed(GROUP)
        if name not in others:
            known = sorted({*self._stores, *others})
            meant = closest(name, known)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
            raise KeyStoreError(f"there is no key store {name[:100]!r}: {hint}")
        try:
            store: KeyStore = others[name].load()()
        except Exception as error:
            log.warning("the server cannot load the key store %s", name, exc_info=error)
            raise KeyStoreError(f"the key store {name} cannot be loaded: {type(error).__name__}") from error
        self._stores[name] = store
        return store


def _path(place: KeyPlace) -> str:
    return ROOT + "/".join(place)


def _seal(place: KeyPlace) -> str:
    return f"replicator keys {'/'.join(place)}"


def _words(place: KeyPlace) -> str:
    if place.type == FUNCTION_TYPE:
        return f"the function {place.region} of {place.namespace}"
    return f"the replicators {place.type} {place.region} of {place.namespace}"
