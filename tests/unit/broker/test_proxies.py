"""What a proxy does for a client where no right is asked for: what acts for the client later, and what it has begun.

A proxy may do what both it and its client may do.  A function, or a replicator, has all rights of the client: one that
may do little could have its own code run with everything that an administrator may do, by naming it as its client.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import pytest

from magnetar.base.names import TopicName
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.broker.broker import Broker
from magnetar.broker.jobs.model import FunctionName
from magnetar.broker.policy.model import Region
from magnetar.broker.security.errors import ClusterNotAuthorized
from magnetar.broker.security.model import CLUSTER, Caller, Operation, Principal, ResourceType
from magnetar.broker.security.rule import Pattern, Rule, Target
from magnetar.broker.settings import BrokerSettings
from magnetar.broker.transactions.errors import TransactionNotFound
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.testing.pulsar import running_door

ADMIN: Final = Principal("User", "admin")
GATEWAY: Final = Caller(Principal("User", "gateway"), "127.0.0.1")
BEHIND_IT: Final = Caller(ADMIN, "127.0.0.1", proxy=GATEWAY)
NAME: Final = FunctionName("public", "default", "f")
CONFIG: Final = {"className": "f.process", "inputs": ["in"]}
REGION: Final = Region("Kafka", "us-west1")
# All that there is to be had in one namespace.
_TOPICS: Final = Target(ResourceType.TOPIC, Pattern.EVERY, scope="public/default")
OF_NAMESPACE: Final = [Rule(str(GATEWAY.principal), Operation.ALL, _TOPICS)]
OF_CLUSTER: Final = Rule(
    str(GATEWAY.principal), Operation.ALTER, Target(ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER.name)
)


async def _create(broker: Broker, caller: Caller) -> None:
    await broker.cases.functions.create(caller, NAME, CONFIG, "f.py", b"code")


async def _update(broker: Broker, caller: Caller) -> None:
    if not broker.functions.stored_in("public/default"):
        await _create(broker, GATEWAY)
    await broker.cases.functions.update(caller, NAME, CONFIG, "f.py", b"other")


async def _replicate(broker: Broker, caller: Caller) -> None:
    properties = {"bootstrap.servers": "kafka:9092"}
    await broker.cases.replicators.add_config(caller, "public/default", REGION, properties, {"t": "t"})


def _owner(broker: Broker) -> Principal | None:
    owners = [one.owner for one in broker.functions.stored_in("public/default")]
    owners += [one.owner for one in broker.namespaces.require("public/default").replicators.values()]
    return owners[0] if owners else None


@pytest.mark.parametrize("declare", [_create, _update, _replicate])
def test_a_proxy_declares_nothing_that_has_more_rights_than_it(
    tmp_path: Path, declare: Callable[[Broker, Caller], Coroutine[Any, Any, None]]
) -> None:
    async def main() -> None:
        settings = BrokerSettings(
            data_dir=str(tmp_path),
            entry_cache_bytes=1 << 20,
            authorization=AuthorizationSettings(frozenset({str(ADMIN)})),
            functions_enabled=True,
        )
        async with running_door(tmp_path, settings) as door:
            broker = door.broker
            assert broker.rules is not None
            await broker.rules.change(lambda _: (OF_NAMESPACE, ()))
            await broker.cases.pulsar_topics.create(GATEWAY, TopicName.parse("t"))
            with pytest.raises(ClusterNotAuthorized, match="gateway"):
                await declare(broker, BEHIND_IT)
            assert _owner(broker) in (None, GATEWAY.principal)
            await declare(broker, GATEWAY)
            assert _owner(broker) == GATEWAY.principal
            await broker.rules.change(lambda _: ([OF_CLUSTER], ()))
            if declare is not _create:
                await declare(broker, BEHIND_IT)
                assert _owner(broker) == ADMIN

    asyncio.run(main())


def test_a_proxy_ends_no_transaction_that_its_client_has_begun_without_it(tmp_path: Path) -> None:
    """To end one takes no right, but being its owner: it committed what an administrator had written, anywhere."""

    async def main() -> None:
        settings = BrokerSettings(
            data_dir=str(tmp_path),
            entry_cache_bytes=1 << 20,
            authorization=AuthorizationSettings(frozenset({str(ADMIN)})),
            transactions=TransactionSettings(transaction_coordinator_enabled=True),
        )
        async with running_door(tmp_path, settings) as door:
            cases = door.broker.cases.pulsar_transactions
            itself = Caller(ADMIN, "127.0.0.1")
            direct, proxied = [await cases.begin(one, 0, 60_000) for one in (itself, BEHIND_IT)]
            for caller, transaction in ((BEHIND_IT, direct), (itself, proxied)):
                with pytest.raises(TransactionNotFound):
                    await cases.end(caller, transaction, commit=True)
                with pytest.raises(TransactionNotFound):
                    cases.add_subscriptions(caller, transaction, [])
            await cases.end(itself, direct, commit=True)
            await cases.end(BEHIND_IT, proxied, commit=False)

    asyncio.run(main())
