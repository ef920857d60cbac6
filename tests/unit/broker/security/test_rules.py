"""Rules are stored: they are there after a restart, and memory never shows what is not durable."""

import asyncio

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.event import Event
from magnetar.broker.security import rules as rules_module
from magnetar.broker.security.errors import InvalidRule
from magnetar.broker.security.model import Operation, ResourceType, topic_resource
from magnetar.broker.security.rule import RULES_ROOT, Pattern, Rule, Target
from magnetar.broker.security.rules import Rules
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.broker.security.test_rule_decisions import FULL, book, every, literal, user

ONE = Rule("User:ann", Operation.READ, literal("t"))
TWO = Rule("User:bob", Operation.WRITE, every(), allow=False, host="10.0.0.1", is_role=True)
T = topic_resource(FULL + "t")


def opened(metadata: MemoryMetadataStore) -> tuple[Rules, list[int]]:
    changes: list[int] = []
    rules = Rules(metadata, book(), Event())
    rules.rights_changed.hear(lambda: changes.append(len(changes)))
    return rules, changes


def test_rules_outlive_a_restart_and_one_is_never_there_twice() -> None:
    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        rules, changes = opened(metadata)
        await rules.change(lambda _: ([ONE, TWO, ONE], ()))
        assert await rules.change(lambda _: ([ONE], ())) == ([], [])
        assert len(changes) == 1
        again, _ = opened(metadata)
        await again.load()
        assert set(again.decisions) == {ONE, TWO}
        await again.change(lambda _: ((), [ONE]))
        assert [Rule.decode(one.value) for _, one in await metadata.scan(RULES_ROOT)] == [TWO]

    asyncio.run(scenario())


def test_a_rule_that_cannot_be_stored_does_not_hold() -> None:
    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        rules, changes = opened(metadata)
        metadata.fail_next = 1
        with pytest.raises(MetadataError):
            await rules.change(lambda _: ([ONE], ()))
        assert not rules.decisions.allows(user("ann"), Operation.READ, T)
        assert not changes

    asyncio.run(scenario())


def test_a_rule_holds_when_it_is_durable_and_its_client_is_gone() -> None:
    """The request is given up while the write is under way; what was written holds, here and after a crash."""

    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        rules, _ = opened(metadata)
        metadata.hold()
        asking = asyncio.ensure_future(rules.change(lambda _: ([ONE], ())))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not rules.decisions.allows(user("ann"), Operation.READ, T)
        asking.cancel()
        metadata.release()
        await rules.ended()
        assert rules.decisions.allows(user("ann"), Operation.READ, T)
        crashed, _ = opened(metadata)
        await crashed.load()
        assert crashed.decisions.allows(user("ann"), Operation.READ, T)

    asyncio.run(scenario())


def test_a_namespace_that_goes_takes_its_rules_along_and_no_others() -> None:
    async def scenario() -> None:
        rules, _ = opened(MemoryMetadataStore())
        group = ResourceType.SUBSCRIPTION
        kept = [
            Rule("User:ann", Operation.READ, Target(group, Pattern.LITERAL, "g")),
            Rule("User:ann", Operation.READ, every("public/default2")),
            Rule(
                "User:ann",
                Operation.READ,
                Target(ResourceType.TOPIC, Pattern.PREFIXED, "persistent://public/def"),
            ),
        ]
        gone = [ONE, TWO, Rule("User:ann", Operation.READ, Target(group, Pattern.EVERY, scope=FULL + "t"))]
        await rules.change(lambda _: ([*kept, *gone], ()))
        await rules.forget_namespace("public/default")
        assert set(rules.decisions) == set(kept)

    asyncio.run(scenario())


def test_the_administrators_of_one_tenant_do_not_take_the_room_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules_module, "TENANT_RULES_MAX", 3)

    def granted(tenant: str, *names: str) -> list[Rule]:
        scope = f"{tenant}/default"
        return [
            Rule("User:ann", Operation.READ, Target(ResourceType.SUBSCRIPTION, Pattern.LITERAL, name, scope))
            for name in names
        ]

    async def scenario() -> None:
        metadata = MemoryMetadataStore()
        rules, _ = opened(metadata)
        topic = Rule(
            "User:ann",
            Operation.READ,
            Target(ResourceType.TOPIC, Pattern.LITERAL, "persistent://a/default/t"),
        )
        await rules.change(lambda _: ([topic, *granted("a", "1", "2")], ()), "a")
        again, _ = opened(metadata)
        await again.load()
        for book_ in (rules, again):
            with pytest.raises(InvalidRule, match="tenant a"):
                await book_.change(lambda _: (granted("a", "3"), ()), "a")
        await rules.change(lambda _: (granted("a", "3"), granted("a", "1")), "a")
        await rules.change(lambda _: (granted("b", "1", "2", "3"), ()), "b")
        await rules.change(lambda _: (granted("a", "4"), ()))  # by who may do so in the whole cluster
        await rules.change(lambda _: ((), granted("a", "2", "3")), "a")
        await rules.change(lambda _: (granted("a", "2"), ()), "a")

    asyncio.run(scenario())
