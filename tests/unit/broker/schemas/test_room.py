"""How much of the memory schemas take, and of the event loop's time."""

import pytest

from magnetar.base.names import TopicName
from magnetar.broker.schemas import compatibility, registry
from magnetar.broker.schemas.model import IncompatibleSchema, Schema, SchemaNotFound, SchemaType
from magnetar.broker.schemas.registry import SCHEMAS_ROOT

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
    monkeypatch.setattr(registry, "TENANT_BYTES_MAX", 4000)

    async def scenario(world: World) -> None:
        await world.registry.register(TOPIC, large(0))
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


async def gone(world: World, topic: TopicName) -> None:
    """The topic is deleted."""
    await world.store.commit(world.registry.deletion_of(topic))
    world.registry.forget(topic)
    await world.registry.drop_unnamed()


async def stored(world: World) -> list[int]:
    """The ids of all definitions that are stored."""
    return [int(path[len(SCHEMAS_ROOT) :]) for path, _ in await world.store.scan(SCHEMAS_ROOT)]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_definitions_go_with_the_last_topic_that_has_them(
    monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """They stayed when their topics went, so a tenant that made topics in turn could make none any more."""
    monkeypatch.setattr(registry, "TENANT_BYTES_MAX", 4000)

    async def scenario(world: World) -> None:
        for one in range(20):
            await world.registry.register(TOPIC, large(one))
            await (gone(world, TOPIC) if is_deleted else world.registry.purge(TOPIC))
            assert await stored(world) == [one + 1], "the newest one says which id is next"
        await world.registry.register(OTHER, large(20))
        await world.registry.register(TOPIC, large(20))
        await world.registry.register(TOPIC, large(21))
        await gone(world, TOPIC)
        assert await stored(world) == [21, 22]
        with pytest.raises(SchemaNotFound):
            world.registry.by_id(20)
        await world.registry.register(ELSEWHERE, large(0))
        assert world.registry.get(ELSEWHERE).schema == large(0)
        await world.restart()
        assert world.registry.get(OTHER).schema == large(20)
        assert await world.registry.register(TOPIC, large(0)) == 0
        assert world.registry.get(TOPIC).schema_id == 23

    run(scenario)


def test_a_start_keeps_definitions_that_no_topic_has() -> None:
    """Damage may have taken their names."""

    async def scenario(world: World) -> None:
        for one in range(3):
            await world.registry.register(TOPIC, large(one))
        await world.store.commit(world.registry.deletion_of(TOPIC))
        await world.restart()
        await world.registry.drop_unnamed()
        assert await stored(world) == [1, 2, 3]
        assert await world.registry.register(OTHER, large(0)) == 0
        assert world.registry.get(OTHER).schema_id == 1
        await world.registry.register(OTHER, large(3))
        await gone(world, OTHER)
        assert await stored(world) == [2, 3, 4]

    run(scenario)


@pytest.mark.parametrize("is_carried_out", [False, True])
def test_a_definition_whose_deletion_is_not_known_is_stored_again(is_carried_out: bool) -> None:
    async def scenario(world: World) -> None:
        for one in (0, 1):
            await world.registry.register(TOPIC, large(one))
        await world.store.commit(world.registry.deletion_of(TOPIC))
        world.registry.forget(TOPIC)
        world.store.fail_next = 1
        await world.registry.drop_unnamed()
        assert await stored(world) == [1, 2]
        if is_carried_out:
            await world.store.delete(f"{SCHEMAS_ROOT}{1:010}")
        await world.registry.register(OTHER, large(0))
        await world.registry.drop_unnamed()
        await world.restart()
        assert world.registry.get(OTHER).schema == large(0)

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
