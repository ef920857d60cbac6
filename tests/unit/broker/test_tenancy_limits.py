"""How many tenants and namespaces there may be."""

import asyncio

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings import load_settings
from magnetar.base.settings_tenancy import TenancyLimits
from magnetar.broker.policy.errors import TooManyNamespaces, TooManyTenants
from magnetar.broker.policy.model import Tenant
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore


async def loaded(store: MemoryMetadataStore, limits: TenancyLimits, *topics: TopicName) -> Namespaces:
    namespaces = Namespaces(store, FakeClock(), limits=limits)
    await namespaces.load({"public/default"}, topics)
    return namespaces


async def nothing_kept(name: str) -> None: ...


def test_no_more_are_made_than_there_may_be() -> None:
    async def scenario() -> None:
        store = MemoryMetadataStore()
        namespaces = await loaded(store, TenancyLimits(2, 2))
        await namespaces.create_tenant(Tenant("acme"))
        for making in (namespaces.create_tenant(Tenant("more")), namespaces.ensure(["more/one"])):
            with pytest.raises(TooManyTenants, match=r"^Exceed the maximum number of tenants$"):
                await making
        await namespaces.create("acme/one")
        for making in (
            namespaces.ensure(["acme/two", "acme/three"]),
            namespaces.ensure(["public/a", "public/b"]),
        ):
            with pytest.raises(TooManyNamespaces):
                await making
        await namespaces.ensure(["acme/one", "acme/two", "public/two"])
        with pytest.raises(
            TooManyNamespaces, match=r"^Exceed the maximum number of namespace in tenant :acme$"
        ):
            await namespaces.create("acme/three")
        await namespaces.delete("acme/two", nothing_kept)
        await namespaces.create("acme/three")

        lower = await loaded(store, TenancyLimits(1, 1))
        assert lower.tenant("acme")
        await lower.ensure(["acme/one", "acme/three"])
        lost = TopicName.parse("persistent://acme/lost/t")
        assert (await loaded(store, TenancyLimits(1, 1), lost)).require(lost.namespace_name), (
            "a topic gets it back"
        )

    asyncio.run(scenario())


def test_settings() -> None:
    assert load_settings(assignments=[]).tenancy == TenancyLimits()
    given = load_settings(assignments=["maxTenants=3", "maxNamespacesPerTenant=7"])
    assert given.tenancy == TenancyLimits(3, 7)
