"""The secrets of functions: a configuration names them, key stores keep their values, instances get them at a start.

A user gives each secret of `secrets` in one of two forms:

    "text"                            the secret itself, for the key store `sealed`
    {"path": STORE, "key": TEXT}      what a key store needs: `environment` needs the name of a variable

These are the words that Pulsar has for a secret of Kubernetes.  The broker stores with the function, and shows,
`{"path": STORE}`: an update with the same value keeps the secret.  Each secret has a place of its own in its key store.

The broker notes a place that no declaration names, so that a start after a kill deletes its secret::

    /function-secrets-left/<id>    the key store, the namespace and the function

The note is written before the place, and the transaction that stores a declaration moves notes with it.

No text of an error, and nothing that is logged, contains a value.
"""

import json
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, NamedTuple, TypeVar

from magnetar.base import randomness
from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.errors import FunctionExists, FunctionNotFound, InvalidFunction, InvalidReplicator
from magnetar.broker.jobs.function_model import Function
from magnetar.broker.jobs.key_stores import SEALED, KeyStores
from magnetar.broker.jobs.plugin_calls import answered, found_store
from magnetar.metadata.store import ANY_VERSION, Delete, MetadataStore, Put
from magnetar.replicators.key_store import FUNCTION_TYPE, KeyPlace, KeyStore

log = logging.getLogger(__name__)

SECRETS_MAX: Final = 50
NAME_CHARS_MAX: Final = 200
SECRET_BYTES_MAX: Final = 8 << 10
LEFT_ROOT: Final = "/function-secrets-left/"
_WORD: Final = "secrets"
_T = TypeVar("_T")


class Given(NamedTuple):
    """A configuration without values, and what the user gives for each secret: the key store's key."""

    config: Mapping[str, Any]
    keys: Mapping[str, str]


class FunctionSecrets:
    """See the module's text.  What asks a key store raises InvalidFunction, and MetadataError if the store is ours."""

    def __init__(self, stores: KeyStores, metadata: MetadataStore, clock: Clock) -> None:
        self._stores = stores
        self._metadata = metadata
        self._clock = clock
        self._tasks = Tasks(log)

    async def load(self) -> None:
        """Forget what a stop has left; MetadataError."""
        for path, stored in await self._metadata.scan(LEFT_ROOT):
            left = json.loads(stored.value)
            place = KeyPlace(left["namespace"], FUNCTION_TYPE, left["name"], path.removeprefix(LEFT_ROOT))
            if not await self._delete(left["path"], place):
                return  # a key store that does not answer makes no start longer than once

    def given(self, config: Mapping[str, Any]) -> Given:
        """Take the values out of a configuration.  Raises InvalidFunction."""
        return _given(config, self._stores)

    @asynccontextmanager
    async def kept(self, function: Function, given: Given) -> AsyncIterator[Mapping[str, str]]:
        """Give key stores what a user has given; yields the ids of the places.  If the body refuses, they go again."""
        ids: dict[str, str] = {}
        try:
            for name, key in given.keys.items():
                path = given.config[_WORD][name]["path"]
                store = self._store(path)
                ids[name] = randomness.hex_token(8)
                place = _place(function, ids[name])
                await self._metadata.commit([_note(path, place)])
                await self._answer(path, store.store(place, {name: key}))
            yield ids
        except (InvalidFunction, FunctionExists, FunctionNotFound):
            # Not after any other failure: the declaration may have been stored.
            for name, place_id in ids.items():
                await self._delete(given.config[_WORD][name]["path"], _place(function, place_id))
            raise

    async def of(self, function: Function) -> Mapping[str, str]:
        """The values, by the secrets' names."""
        found: dict[str, str] = {}
        for name, (path, place_id) in _places(function).items():
            answer = await self._answer(path, self._store(path).fetch(_place(function, place_id)))
            value = answer.get(name)
            if not isinstance(value, str):
                raise InvalidFunction(f"the key store {path} has no secret {name}")
            found[name] = value
        return found

    def moves(self, before: Function | None, after: Function | None) -> list[Put | Delete]:
        """What a transaction that puts one declaration in the place of another does with notes."""
        named = set() if after is None else set(after.secrets.values())
        was_named = set() if before is None else set(before.secrets.values())
        return [
            *(Delete(LEFT_ROOT + one, ANY_VERSION) for one in named - was_named),
            *(_note(path, place) for path, place in _dropped(before, after)),
        ]

    async def forget(self, before: Function, after: Function | None = None) -> None:
        """Delete what a function no longer has; all of a function that is deleted.  A failure is logged."""
        for path, place in _dropped(before, after):
            await self._delete(path, place)

    async def _delete(self, path: str, place: KeyPlace) -> bool:
        try:
            await self._answer(path, self._store(path).delete(place))
            await self._metadata.delete(LEFT_ROOT + place.id)
        except BrokerError as error:
            log.warning("a secret of a function of %s waits for the next start: %s", place.namespace, error)
            return False
        return True

    def _store(self, path: str) -> KeyStore:
        try:
            return found_store(self._stores, path)
        except InvalidReplicator as error:
            raise InvalidFunction(str(error)) from None

    async def _answer(self, path: str, call: Coroutine[Any, Any, _T]) -> _T:
        try:
            return await answered(self._clock, self._tasks, path, call)
        except InvalidReplicator as error:
            raise InvalidFunction(str(error)) from None


def places_of(config: Mapping[str, Any], ids: Mapping[str, str], before: Function | None) -> dict[str, str]:
    """The ids of the places of a configuration's secrets, by name: those that are new, and those that the function had
    before.

    Raises:
        InvalidFunction: a secret has neither.
    """
    had = {} if before is None else _places(before)
    found: dict[str, str] = {}
    for name, spec in (config.get(_WORD) or {}).items():
        path, place_id = had.get(name, ("", ""))
        if name in ids:
            found[name] = ids[name]
        elif path == spec["path"]:
            found[name] = place_id
        else:
            raise InvalidFunction(f"the secret {name} has no key, and there is none of before")
    return found


def _places(function: Function) -> dict[str, tuple[str, str]]:
    """The key store and the id of each secret."""
    specs = function.config.get(_WORD) or {}
    return {name: (specs[name]["path"], place_id) for name, place_id in function.secrets.items()}


def _dropped(before: Function | None, after: Function | None) -> list[tuple[str, KeyPlace]]:
    """The key stores and places that `before` names, and `after` does not."""
    if before is None:
        return []
    left = set() if after is None else set(after.secrets.values())
    return [
        (path, _place(before, place_id))
        for path, place_id in _places(before).values()
        if place_id not in left
    ]


def _note(path: str, place: KeyPlace) -> Put:
    document = {"path": path, "namespace": place.namespace, "name": place.region}
    return Put(LEFT_ROOT + place.id, json.dumps(document).encode())


def _place(function: Function, place_id: str) -> KeyPlace:
    return KeyPlace(function.namespace_name, FUNCTION_TYPE, function.name, place_id)


def _given(config: Mapping[str, Any], stores: KeyStores) -> Given:
    said = config.get(_WORD)
    if not said:
        return Given(config, {})
    if not isinstance(said, dict):
        raise InvalidFunction("secrets of a function must be an object")
    if len(said) > SECRETS_MAX:
        raise InvalidFunction(f"a function has at most {SECRETS_MAX} secrets")
    kept: dict[str, Mapping[str, str]] = {}
    keys: dict[str, str] = {}
    for name, value in said.items():
        if not 0 < len(name) <= NAME_CHARS_MAX:
            raise InvalidFunction(f"the name of a secret has 1 to {NAME_CHARS_MAX} characters")
        path, key = (SEALED, value) if isinstance(value, str) else _reference(name, value)
        kept[name] = {"path": stores.name_of(path)}
        if key is None:
            continue
        if not 0 < len(key.encode("utf-8", "replace")) <= SECRET_BYTES_MAX:
            raise InvalidFunction(f"the secret {name} must have 1 to {SECRET_BYTES_MAX} bytes")
        keys[name] = key
    return Given({**config, _WORD: kept}, keys)


def _reference(name: str, value: object) -> tuple[str, str | None]:
    if isinstance(value, dict) and value.keys() <= {"path", "key"}:
        path, key = value.get("path"), value.get("key")
        if isinstance(path, str) and (key is None or isinstance(key, str)):
            return path, key
    raise InvalidFunction(
        f"the secret {name} must be a text, or an object with the name of a key store as path and a text as key"
    )
