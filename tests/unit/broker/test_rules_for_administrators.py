"""Rules hold for those who administer: by none of the ways to change a tenant do they get around what is denied."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.broker import Broker
from magnetar.broker.jobs.model import FunctionName
from magnetar.broker.policy.model import Tenant
from magnetar.broker.security.errors import NamespaceNotAuthorized, NotAuthorized, TopicNotAuthorized
from magnetar.broker.security.model import (
    Caller,
    Operation,
    Principal,
    ResourceType,
    namespace_resource,
    subscription_resource,
)
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.settings import BrokerSettings
from magnetar.testing.pulsar import running_door

ADMIN: Final = Caller(Principal("User", "admin"), "127.0.0.1")
BOSS: Final = Caller(Principal("User", "boss"), "127.0.0.1")
EVE: Final = Caller(Principal("User", "eve"), "127.0.0.1")
SALES, ARCHIVE = "acme/sales", "acme/archive"
KEPT: Final = TopicName("acme", "archive", "kept")
_ONE_TOPIC: Final = Target(ResourceType.TOPIC, Pattern.LITERAL, KEPT.full)
_TOPICS_OF_ARCHIVE: Final = Target(ResourceType.TOPIC, Pattern.EVERY, scope=ARCHIVE)

Scenario = Callable[[Broker], Coroutine[Any, Any, None]]


def run(tmp_path: Path, scenario: Scenario) -> None:
    """Run it with a tenant of two namespaces, which `BOSS` administers."""

    async def main() -> None:
        settings = BrokerSettings(
            data_dir=str(tmp_path),
            entry_cache_bytes=1 << 20,
            authorization=AuthorizationSettings(frozenset({str(ADMIN.principal)})),
            functions_enabled=True,
        )
        async with running_door(tmp_path, settings) as door:
            broker = door.broker
            await broker.namespaces.create_tenant(Tenant("acme", ("boss",)))
            for name in (SALES, ARCHIVE):
                await broker.namespaces.create(name)
            await scenario(broker)

    asyncio.run(main())


async def ruled(broker: Broker, *rules: Rule) -> None:
    assert broker.rules is not None
    await broker.rules.change(lambda _: (rules, ()))


@pytest.mark.parametrize(
    ("target", "operation", "refusal"),
    [
        (_ONE_TOPIC, Operation.DELETE, TopicNotAuthorized),
        (_TOPICS_OF_ARCHIVE, Operation.DELETE, NamespaceNotAuthorized),
        (_TOPICS_OF_ARCHIVE, Operation.FUNCTIONS, NamespaceNotAuthorized),
    ],
)
def test_a_tenant_takes_nothing_along_that_its_administrator_may_not_delete(
    tmp_path: Path, target: Target, operation: Operation, refusal: type[NotAuthorized]
) -> None:
    """As its namespace does not."""

    async def scenario(broker: Broker) -> None:
        cases = broker.cases
        await cases.pulsar_topics.create(ADMIN, KEPT)
        function = FunctionName("acme", "archive", "f")
        config = {"className": "f.process", "inputs": ["acme/archive/kept"]}
        await cases.functions.create(ADMIN, function, config, "f.py", b"code")
        denial = Rule(str(BOSS.principal), operation, target, allow=False)
        await ruled(broker, denial)
        for deleted in (
            cases.namespaces.delete(BOSS, ARCHIVE, force=True),
            cases.tenants.delete(BOSS, "acme", force=True),
        ):
            with pytest.raises(refusal):
                await deleted
        assert broker.namespaces.names_of("acme") == [ARCHIVE, SALES]
        assert broker.topics.find(KEPT) is not None
        assert broker.functions.stored_in(ARCHIVE)
        assert broker.rules is not None
        await broker.rules.change(lambda _: ((), (denial,)))
        await cases.tenants.delete(BOSS, "acme", force=True)
        assert broker.topics.find(KEPT) is None

    run(tmp_path, scenario)


def test_who_may_change_settings_does_not_let_itself_into_others_subscriptions(tmp_path: Path) -> None:
    """A namespace whose subscriptions begin with the names of their roles keeps each role's for itself."""

    def with_mode(mode: str) -> Callable[[dict[str, Any]], Mapping[str, Any]]:
        return lambda values: {**values, "subscription_auth_mode": mode}

    async def scenario(broker: Broker) -> None:
        topics = Target(ResourceType.TOPIC, Pattern.EVERY, scope=SALES)
        names = Target(ResourceType.SUBSCRIPTION, Pattern.EVERY, scope=SALES)
        eve = str(EVE.principal)
        await ruled(
            broker,
            Rule(eve, Operation.ALTER_CONFIGS, topics),
            Rule(eve, Operation.READ, topics),
            Rule(eve, Operation.READ, names),
        )
        assert broker.rules is not None
        allows, change = broker.rules.decisions.allows, broker.cases.policies.change_namespace
        anns = subscription_resource(TopicName("acme", "sales", "t").full, "ann-jobs")
        await change(BOSS, SALES, with_mode("Prefix"))
        with pytest.raises(NotAuthorized):
            await change(EVE, SALES, with_mode("None"))
        assert not allows(EVE, Operation.READ, anns)
        await change(EVE, SALES, lambda values: {**values, "message_ttl_in_seconds": 60})
        assert allows(EVE, Operation.ALTER_CONFIGS, namespace_resource(SALES))
        policies = broker.namespaces.require(SALES).policies
        assert (policies["subscription_auth_mode"], policies["message_ttl_in_seconds"]) == ("Prefix", 60)
        await change(BOSS, SALES, with_mode("None"))
        assert allows(EVE, Operation.READ, anns)

    run(tmp_path, scenario)
