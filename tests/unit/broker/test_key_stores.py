"""Key stores of other packages, whatever they do."""

import asyncio
import logging
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.errors import InvalidReplicator
from magnetar.broker.jobs.key_stores import KeyStores, SealedKeyStore
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.jobs.plugin_calls import KEY_STORE_S_MAX, answered, found_store, refusing
from magnetar.broker.jobs.replicator_keys import ReplicatorKeys
from magnetar.broker.policy.model import Region, ReplicatorConfig
from magnetar.broker.security.model import ANONYMOUS
from magnetar.replicators.errors import ReplicatorConfigError
from magnetar.replicators.key_store import GROUP, KeyPlace, KeyStoreError
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.circles import error_stays

from .test_producer_state import settle

N = "public/default"


class Vault:
    """A key store as another package would have it."""

    kept: ClassVar[dict[KeyPlace, Mapping[str, Any]]] = {}

    async def store(self, place: KeyPlace, auth_param: Mapping[str, Any]) -> None:
        self.kept[place] = auth_param

    async def fetch(self, place: KeyPlace) -> Mapping[str, Any]:
        return {"user": "u", "password": self.kept[place]["path"]}

    async def delete(self, place: KeyPlace) -> None:
        del self.kept[place]


class Broken:
    def __init__(self) -> None:
        raise RuntimeError("a-well-kept-secret")


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> KeyStores:
    points = {name: EntryPoint(name, f"{__name__}:{name}", GROUP) for name in ("Vault", "Broken")}
    monkeypatch.setattr("magnetar.broker.jobs.key_stores.installed", lambda group: points)
    return KeyStores(SealedKeyStore(MemoryMetadataStore(), PipelineKeys()), {}, ReplicatorVariables())


def _config(key_store: str, keys: str = "1") -> ReplicatorConfig:
    return ReplicatorConfig(Region("Kafka", "r"), {}, {"t": "u"}, key_store, ANONYMOUS, 0, keys)


def test_a_key_store_of_another_package_is_found_by_its_name(stores: KeyStores) -> None:
    async def main() -> None:
        keys = ReplicatorKeys(stores, FakeClock())
        config = _config("Vault")
        await keys.keep(N, config, {"path": "kafka/orders"})
        assert await keys.of(N, config) == {"user": "u", "password": "kafka/orders"}
        Vault.kept[KeyPlace(N, "Kafka", "r", "1")] = {"path": "kafka/new"}
        assert await keys.of(N, config) == {"user": "u", "password": "kafka/orders"}, (
            "known until it is asked"
        )
        await keys.ask(N, config)
        assert await keys.of(N, config) == {"user": "u", "password": "kafka/new"}
        await keys.delete(N, config)
        assert not Vault.kept

    asyncio.run(main())


def test_a_configuration_without_credentials_asks_no_key_store(stores: KeyStores) -> None:
    async def main() -> None:
        keys = ReplicatorKeys(stores, FakeClock())
        assert await keys.of(N, _config("sealed", "")) is None
        await keys.delete(N, _config("sealed", ""))

    asyncio.run(main())


def test_a_key_store_that_cannot_be_loaded_is_one_sentence(stores: KeyStores) -> None:
    with pytest.raises(InvalidReplicator, match="Broken cannot be loaded: RuntimeError") as refused:
        found_store(stores, "Broken")
    assert "well-kept" not in str(refused.value)
    with pytest.raises(InvalidReplicator, match="did you mean Vault"):
        found_store(stores, "Valt")


def test_a_key_store_that_fails_or_is_silent_is_one_sentence() -> None:
    async def fails() -> None:
        raise ValueError("a-well-kept-secret")

    async def refuses() -> None:
        raise KeyStoreError("there is no such path")

    async def main() -> None:
        clock, tasks = FakeClock(), Tasks(logging.getLogger(__name__))
        for call, why in (
            (fails(), "has failed with ValueError"),
            (refuses(), "there is no such path"),
            (asyncio.Event().wait(), "has not answered"),
        ):
            asking = asyncio.ensure_future(answered(clock, tasks, "Vault", call))
            await settle()
            clock.advance(KEY_STORE_S_MAX)
            with pytest.raises(InvalidReplicator, match=why) as refused:
                await asking
            assert "well-kept" not in str(refused.value)
        assert not len(tasks)

    asyncio.run(main())


def test_the_refusal_of_a_key_store_does_not_stay() -> None:
    async def refuses() -> None:
        raise KeyStoreError("there is no such path")

    async def main() -> None:
        clock, tasks = FakeClock(), Tasks(logging.getLogger(__name__))
        assert not await error_stays(InvalidReplicator, lambda: answered(clock, tasks, "Vault", refuses()))

    asyncio.run(main())


def test_a_caller_that_gives_up_takes_its_question_with_it() -> None:
    async def main() -> None:
        tasks = Tasks(logging.getLogger(__name__))
        asking = asyncio.ensure_future(answered(FakeClock(), tasks, "Vault", asyncio.Event().wait()))
        await settle()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await tasks.ended()

    asyncio.run(main())


def test_a_provider_that_repeats_a_credential_does_not_show_it() -> None:
    async def refuses() -> None:
        raise ReplicatorConfigError("the password a-well-kept-secret is too short")

    async def fails() -> None:
        raise ValueError("a-well-kept-secret")

    async def main() -> None:
        for call in (refuses(), fails()):
            with pytest.raises(InvalidReplicator) as refused:
                await refusing(call, {"password": "a-well-kept-secret"})
            assert "well-kept" not in str(refused.value)

    asyncio.run(main())
