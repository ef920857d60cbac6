"""The registry: versions, strategies, what producers and consumers bring, restarts."""

import asyncio
import base64
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from magnetar.base.errors import MetadataError
from magnetar.base.names import TopicName
from magnetar.broker.policy.model import Compatibility, Policies
from magnetar.broker.schemas.model import (
    DEFINITION_BYTES_MAX,
    IncompatibleSchema,
    InvalidSchema,
    Schema,
    SchemaNotFound,
    SchemaType,
    decode_version,
    encode_version,
    text_of,
)
from magnetar.broker.schemas.registry import SchemaRegistry
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore

TOPIC = TopicName.parse("persistent://public/default/t")
OTHER = TopicName.parse("persistent://public/default/other")


class World:
    def __init__(self) -> None:
        self.store = MemoryMetadataStore()
        self.clock = FakeClock()
        self.policies: dict[str, Any] = {}
        self.is_linked = False
        self.registry = self.make()

    def make(self) -> SchemaRegistry:
        return SchemaRegistry(
            self.store, self.clock, lambda _: Policies(**self.policies), lambda _: self.is_linked
        )

    async def restart(self) -> SchemaRegistry:
        self.registry = self.make()
        await self.registry.load()
        return self.registry


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(World())

    asyncio.run(main())


def avro(*fields: tuple[str, Any], kind: SchemaType = SchemaType.AVRO, **more: Any) -> Schema:
    """A record; a field whose name ends in `=` has a default."""
    listed = [
        {"name": name.rstrip("="), "type": type_, **({"default": 0} if name.endswith("=") else {})}
        for name, type_ in fields
    ]
    return Schema(kind, json.dumps({"type": "record", "name": "R", "fields": listed, **more}).encode())


A, AB, ABX, B = (
    avro(("a", "int")),
    avro(("a", "int"), ("b", "int")),
    avro(("a", "int"), ("b=", "int")),
    avro(("b", "int")),
)
STRING, INT32 = Schema(SchemaType.STRING), Schema(SchemaType.INT32)


def test_versions_count_from_zero_and_a_schema_keeps_its_own() -> None:
    async def scenario(world: World) -> None:
        registry = world.registry
        assert await registry.check_producer(TOPIC, A) == b"\0" * 8
        assert await registry.check_producer(TOPIC, ABX) == b"\0" * 7 + b"\1"
        assert await registry.register(TOPIC, A) == 0
        assert registry.get(TOPIC).version == 1
        assert registry.get(TOPIC, 0).schema == A
        for missing in (2, -1):
            with pytest.raises(SchemaNotFound):
                registry.get(TOPIC, missing)
        with pytest.raises(SchemaNotFound):
            registry.get(OTHER)

    run(scenario)


def test_spelling_and_documentation_make_no_new_version() -> None:
    async def scenario(world: World) -> None:
        spelled = Schema(SchemaType.AVRO, json.dumps(json.loads(A.data), indent=4).encode())
        documented = avro(("a", "int"), doc="what it is")
        assert [await world.registry.register(TOPIC, one) for one in (A, spelled, documented)] == [0, 0, 0]
        assert await world.registry.register(TOPIC, ABX) == 1

    run(scenario)


def test_partitions_and_both_domains_share_schemas_and_a_definition_is_stored_once() -> None:
    async def scenario(world: World) -> None:
        registry = world.registry
        await registry.register(TOPIC, A)
        assert registry.get(TopicName.parse("non-persistent://public/default/t")).schema == A
        await registry.register(OTHER, A)
        assert registry.get(OTHER).schema_id == registry.get(TOPIC).schema_id == 1
        assert len(await world.store.scan("/schemas/")) == 1
        await registry.register(OTHER, ABX)
        assert registry.get(OTHER).schema_id == 2
        assert registry.by_id(2) == ABX
        with pytest.raises(SchemaNotFound):
            registry.by_id(3)

    run(scenario)


def test_everything_survives_a_restart_and_ids_go_on() -> None:
    async def scenario(world: World) -> None:
        described = Schema(SchemaType.AVRO, A.data, {"k": "v"}, "name")
        await world.registry.register(TOPIC, described)
        await world.registry.register(TOPIC, ABX)
        before = world.registry.history(TOPIC)
        registry = await world.restart()
        assert registry.history(TOPIC) == before
        assert await registry.register(TOPIC, described) == 0
        await registry.register(OTHER, STRING)
        assert registry.get(OTHER).schema_id == 3

    run(scenario)


def test_what_cannot_be_stored_is_not_there() -> None:
    async def scenario(world: World) -> None:
        world.store.fail_next = 1
        with pytest.raises(MetadataError):
            await world.registry.register(TOPIC, A)
        assert not world.registry.has_schema(TOPIC)
        assert await world.registry.register(TOPIC, A) == 0
        assert world.registry.get(TOPIC).schema_id == 1

    run(scenario)


def test_clients_that_bring_one_new_schema_at_once_get_one_version() -> None:
    async def scenario(world: World) -> None:
        world.store.hold()
        bringing = [asyncio.create_task(world.registry.register(TOPIC, A)) for _ in range(5)]
        await asyncio.sleep(0)
        world.store.release()
        assert await asyncio.gather(*bringing) == [0] * 5

    run(scenario)


def test_deleted_schemas_are_hidden_and_compared_with_nothing() -> None:
    async def scenario(world: World) -> None:
        registry = world.registry
        await registry.register(TOPIC, A)
        assert await registry.delete(TOPIC) == 1
        assert not registry.has_schema(TOPIC)
        for version in (None, 0, 1):  # in Pulsar, too, messages of version 0 are without their schema then
            with pytest.raises(SchemaNotFound):
                registry.get(TOPIC, version)
        assert await registry.register(TOPIC, STRING) == 2
        assert registry.get(TOPIC, 2).schema == STRING
        with pytest.raises(SchemaNotFound):
            registry.get(TOPIC, 0)
        assert [one.version for one in registry.versions(TOPIC)] == [2]
        assert [one.version for one in (await world.restart()).versions(TOPIC)] == [2]

    run(scenario)


def test_a_topic_that_is_made_again_starts_from_version_zero() -> None:
    async def scenario(world: World) -> None:
        await world.registry.register(TOPIC, A)
        await world.store.commit(world.registry.deletion_of(TOPIC))
        world.registry.forget(TOPIC)
        assert await world.registry.register(TOPIC, STRING) == 0
        assert (await world.restart()).get(TOPIC).schema == STRING

    run(scenario)


# strategy, the topic's schemas, the new one, whether it is taken
C = Compatibility
STRATEGIES: list[tuple[Compatibility, list[Schema], Schema, bool]] = [
    (C.FULL, [A], ABX, True),
    (C.FULL, [A], AB, False),
    (C.FULL, [AB], A, False),
    (C.BACKWARD, [AB], A, True),
    (C.BACKWARD, [A], AB, False),
    (C.FORWARD, [A], AB, True),
    (C.FORWARD, [AB], A, False),
    (C.ALWAYS_COMPATIBLE, [A], STRING, True),
    (C.ALWAYS_COMPATIBLE, [A], B, True),
    (C.ALWAYS_INCOMPATIBLE, [A], ABX, False),
    (C.ALWAYS_INCOMPATIBLE, [A], A, True),
    (C.ALWAYS_INCOMPATIBLE, [], A, True),
    (C.FULL, [A], STRING, False),
    (C.FULL, [STRING], STRING, True),
    (C.FULL, [STRING], INT32, False),
    (C.BACKWARD, [avro(("a", "int"), kind=SchemaType.JSON)], avro(("a", "int"), kind=SchemaType.AVRO), False),
    (C.BACKWARD, [avro(("a", "int"), kind=SchemaType.JSON)], avro(("a", "long"), kind=SchemaType.JSON), True),
    (
        C.FULL,
        [avro(("a", "int"), kind=SchemaType.PROTOBUF)],
        avro(("a", "long"), kind=SchemaType.PROTOBUF),
        False,
    ),
    # AB follows B backward, A follows AB backward; with B in sight A does not
    (C.BACKWARD, [B, avro(("b", "int"), ("a=", "int"))], A, True),
    (C.BACKWARD_TRANSITIVE, [B, avro(("b", "int"), ("a=", "int"))], A, False),
    (C.FORWARD, [A, ABX], B, False),
    (C.FORWARD, [A, avro(("a=", "int"))], B, True),
    (C.FORWARD_TRANSITIVE, [A, avro(("a=", "int"))], B, False),
    (C.FULL_TRANSITIVE, [A, ABX], avro(("a", "int"), ("c=", "int")), True),
    (C.FULL_TRANSITIVE, [A, ABX], avro(("b=", "int")), False),
]


@pytest.mark.parametrize(("strategy", "existing", "new", "taken"), STRATEGIES)
def test_a_new_schema_is_taken_as_the_strategy_says(
    strategy: Compatibility, existing: list[Schema], new: Schema, taken: bool
) -> None:
    async def scenario(world: World) -> None:
        world.policies = {"schema_compatibility": C.ALWAYS_COMPATIBLE}
        for one in existing:
            await world.registry.register(TOPIC, one)
        world.policies = {"schema_compatibility": strategy}
        if taken:
            await world.registry.register(TOPIC, new)
            assert world.registry.find(TOPIC, new) is not None
        else:
            with pytest.raises(IncompatibleSchema):
                await world.registry.register(TOPIC, new)
            assert len(world.registry.history(TOPIC)) == len(existing)

    run(scenario)


def key_value(key: Schema, value: Schema, **properties: str) -> Schema:
    data = b"".join(struct.pack(">i", len(one.data) or -1) + one.data for one in (key, value))
    types = {"key.schema.type": key.type.name, "value.schema.type": value.type.name}
    return Schema(SchemaType.KEY_VALUE, data, {**types, "kv.encoding.type": "INLINE", **properties})


@pytest.mark.parametrize(
    ("existing", "new", "taken"),
    [
        (key_value(STRING, A), key_value(STRING, ABX), True),
        (key_value(STRING, A), key_value(STRING, AB), False),
        (key_value(A, STRING), key_value(AB, STRING), False),
        (key_value(STRING, A), key_value(INT32, ABX), False),
        (key_value(STRING, A), ABX, False),
    ],
)
def test_both_parts_of_a_key_value_schema_are_compared(existing: Schema, new: Schema, taken: bool) -> None:
    async def scenario(world: World) -> None:
        await world.registry.register(TOPIC, existing)
        if taken:
            assert await world.registry.register(TOPIC, new) == 1
        else:
            with pytest.raises(IncompatibleSchema):
                await world.registry.register(TOPIC, new)

    run(scenario)


def native(root: str, files: bytes = b"x") -> Schema:
    document = {"rootMessageTypeName": root, "fileDescriptorSet": base64.b64encode(files).decode()}
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(document).encode())


def test_a_native_protobuf_schema_keeps_its_root_message() -> None:
    async def scenario(world: World) -> None:
        await world.registry.register(TOPIC, native("A"))
        assert await world.registry.register(TOPIC, native("A", b"y")) == 1
        with pytest.raises(IncompatibleSchema):
            await world.registry.register(TOPIC, native("B"))

    run(scenario)


@pytest.mark.parametrize(
    "schema",
    [
        Schema(SchemaType.AVRO, b""),
        Schema(SchemaType.AVRO, b'{"type":"record"}'),
        Schema(SchemaType.AVRO, b" " * (DEFINITION_BYTES_MAX + 1)),
        Schema(SchemaType.AUTO_CONSUME),
        Schema(SchemaType.KEY_VALUE, b""),
        Schema(SchemaType.KEY_VALUE, b"\0\0\0\5abc\0\0\0\0"),
        Schema(SchemaType.KEY_VALUE, b"\0" * 8, {"key.schema.type": "NOPE"}),
        Schema(SchemaType.KEY_VALUE, b"\0" * 8, {"key.schema.type": "KEY_VALUE"}),
        Schema(SchemaType.KEY_VALUE, b"\0" * 8, {"key.schema.type": "AVRO"}),
        Schema(SchemaType.PROTOBUF_NATIVE, b"[]"),
        Schema(SchemaType.PROTOBUF_NATIVE, b"{}"),
        Schema(SchemaType.PROTOBUF_NATIVE, b'{"rootMessageTypeName":"a","fileDescriptorSet":"*"}'),
    ],
)
def test_a_definition_that_is_none_is_refused(schema: Schema) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(InvalidSchema):
            await world.registry.register(TOPIC, schema)
        assert not world.registry.has_schema(TOPIC)

    run(scenario)


def test_an_old_json_schema_is_taken_and_does_not_mix_with_avros_kind() -> None:
    async def scenario(world: World) -> None:
        old = Schema(SchemaType.JSON, b'{"type":"object","properties":{"a":{"type":"integer"}}}')
        await world.registry.register(TOPIC, old)
        newer = Schema(SchemaType.JSON, b'{"type":"object","properties":{}}')
        assert await world.registry.register(TOPIC, newer) == 1
        with pytest.raises(IncompatibleSchema):
            await world.registry.register(TOPIC, avro(("a", "int"), kind=SchemaType.JSON))

    run(scenario)


def test_producers_without_a_schema_are_refused_when_the_policy_says_so() -> None:
    async def scenario(world: World) -> None:
        registry = world.registry
        assert await registry.check_producer(TOPIC, None) == b""
        await registry.register(TOPIC, A)
        assert await registry.check_producer(TOPIC, None) == b""
        world.policies = {"schema_validation_enforced": True}
        with pytest.raises(IncompatibleSchema):
            await registry.check_producer(TOPIC, None)
        assert await registry.check_producer(OTHER, None) == b""

    run(scenario)


def test_without_auto_update_only_an_administrator_adds_schemas() -> None:
    async def scenario(world: World) -> None:
        world.policies = {"schema_auto_update": False}
        with pytest.raises(IncompatibleSchema):
            await world.registry.check_producer(TOPIC, A)
        assert await world.registry.register(TOPIC, A, may_update=True) == 0
        assert await world.registry.check_producer(TOPIC, A) == encode_version(0)

    run(scenario)


def test_a_consumer_of_an_idle_topic_brings_its_schema() -> None:
    async def scenario(world: World) -> None:
        registry = world.registry
        for nothing in (None, Schema(SchemaType.AUTO_CONSUME)):
            await registry.check_consumer(TOPIC, nothing, is_idle=True, has_producers=False)
        assert not registry.has_schema(TOPIC)
        with pytest.raises(IncompatibleSchema):
            await registry.check_consumer(TOPIC, A, is_idle=False, has_producers=True)
        await registry.check_consumer(TOPIC, A, is_idle=False, has_producers=False)
        assert not registry.has_schema(TOPIC)
        await registry.check_consumer(TOPIC, A, is_idle=True, has_producers=False)
        assert registry.get(TOPIC).schema == A
        await registry.check_consumer(
            TOPIC, avro(("a", "long")), is_idle=True, has_producers=False
        )  # reads what A wrote
        assert len(registry.versions(TOPIC)) == 1
        with pytest.raises(IncompatibleSchema):
            await registry.check_consumer(TOPIC, AB, is_idle=True, has_producers=False)
        with pytest.raises(IncompatibleSchema):
            await registry.check_consumer(TOPIC, STRING, is_idle=False, has_producers=False)

    run(scenario)


@pytest.mark.parametrize(
    ("strategy", "consumer", "taken"),
    [
        (C.FORWARD, A, True),  # reads the latest
        (C.FORWARD, B, True),
        (C.BACKWARD_TRANSITIVE, B, False),  # does not read the first
        (C.BACKWARD_TRANSITIVE, A, True),
        (C.FORWARD, STRING, False),
        (C.ALWAYS_COMPATIBLE, STRING, True),
        (C.ALWAYS_INCOMPATIBLE, avro(("a", "long")), False),
    ],
)
def test_a_consumer_is_held_to_the_latest_schema_or_to_all(
    strategy: Compatibility, consumer: Schema, taken: bool
) -> None:
    async def scenario(world: World) -> None:
        world.policies = {"schema_compatibility": C.ALWAYS_COMPATIBLE}
        for one in (A, AB):
            await world.registry.register(TOPIC, one)
        world.policies = {"schema_compatibility": strategy}
        if taken:
            await world.registry.check_consumer(TOPIC, consumer, is_idle=False, has_producers=False)
        else:
            with pytest.raises(IncompatibleSchema):
                await world.registry.check_consumer(TOPIC, consumer, is_idle=False, has_producers=False)

    run(scenario)


def test_a_version_is_eight_bytes() -> None:
    assert decode_version(encode_version(7)) == 7
    assert decode_version(b"") is None
    with pytest.raises(SchemaNotFound):
        decode_version(b"7")


def test_how_definitions_are_shown() -> None:
    assert text_of(A) == A.data.decode()
    assert json.loads(text_of(key_value(STRING, A))) == {"key": "", "value": json.loads(A.data)}


def test_a_definition_with_deeply_nested_attributes_stands_in_no_other_one_s_way() -> None:
    """Each client that brought another schema to that topic lost its connection by a traceback."""

    async def scenario(world: World) -> None:
        attribute: list[Any] = []
        for _ in range(600):
            attribute = [attribute]
        deep = avro(("a", "int"), x=attribute)
        assert await world.registry.register(TOPIC, deep) == 0
        assert await world.registry.register(TOPIC, ABX) == 1
        assert await world.registry.register(TOPIC, deep) == 0

    run(scenario)


def test_what_another_cluster_took_for_a_definition_stands_in_no_other_one_s_way() -> None:
    async def scenario(world: World) -> None:
        odd = Schema(SchemaType.AVRO, b"no definition")
        assert await world.registry.copy(TOPIC, 0, [A, odd]) == 2
        assert await world.registry.register(TOPIC, A) == 0
        with pytest.raises(InvalidSchema):
            await world.registry.register(TOPIC, odd)

    run(scenario)
