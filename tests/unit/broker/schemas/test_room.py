"""How much of the memory schemas take, and of the event loop's time."""

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.schemas import compatibility, registry
from magnetar.broker.schemas.model import IncompatibleSchema, Schema, SchemaType

from .test_registry import OTHER, TOPIC, World, avro, run

ELSEWHERE = TopicName.parse("persistent://acme/house/t")


def large(number: int) -> Schema:
    """A definition of a kilobyte, compatible with the others."""
    return avro(("a", "int"), x=f"{number}".ljust(1000))


def test_a_topic_has_only_so_much_of_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """One topic had ten thousand of half a megabyte, all of them in memory."""
    monkeypatch.setattr(registry, "TOPIC_BYTES_MAX", 4000)

    async def scenario(world: World) -> None:
        for _ in range(2):
            assert [await world.registry.register(TOPIC, large(one)) for one in (0, 1)] == [0, 1]
            with pytest.raises(IncompatibleSchema, match="4000 bytes"):
                await world.registry.register(TOPIC, large(2))
            with pytest.raises(IncompatibleSchema, match="4000 bytes"):
                await world.registry.copy(TOPIC, 2, [large(2)])
            await world.restart()
        assert await world.registry.register(OTHER, large(2)) == 0
        assert await world.registry.register(TOPIC, large(2)) == 2  # it is stored already

    run(scenario)


def test_a_tenant_has_only_so_much_of_definitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Definitions stay when their topic is deleted: one after the other took all memory."""
    monkeypatch.setattr(registry, "TENANT_BYTES_MAX", 4000)

    async def scenario(world: World) -> None:
        await world.registry.register(TOPIC, large(0))
        await world.registry.purge(TOPIC)
        await world.registry.register(TOPIC, large(1))
        with pytest.raises(IncompatibleSchema, match="4000 bytes"):
            await world.registry.register(OTHER, large(2))
        assert await world.registry.register(ELSEWHERE, large(2)) == 0
        assert await world.registry.register(OTHER, large(0)) == 0
        await world.restart()
        with pytest.raises(IncompatibleSchema, match="4000 bytes"):
            await world.registry.register(OTHER, large(3))
        assert await world.registry.register(ELSEWHERE, large(3)) == 1

    run(scenario)


def test_a_definition_is_looked_into_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client that brought one had all others of its topic read again, on the event loop."""
    looked: list[int] = []
    found = compatibility.meaning

    def counted(schema: Schema) -> bytes:
        looked.append(1)
        return found(schema)

    monkeypatch.setattr(registry, "meaning", counted)

    async def scenario(world: World) -> None:
        for one in range(20):
            await world.registry.register(TOPIC, large(one))
        await world.registry.register(TOPIC, large(0))
        looked.clear()
        for _ in range(10):
            assert await world.registry.register(TOPIC, large(3)) == 3
        assert len(looked) == 10
        assert await world.registry.register(TOPIC, Schema(SchemaType.AVRO, large(3).data + b" ")) == 3

    run(scenario)
