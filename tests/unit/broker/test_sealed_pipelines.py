"""A pipeline's configuration is stored in no way that gives a secret in it away."""

import json
from dataclasses import replace

from magnetar.broker.jobs.model import Desired, State
from tests.unit.broker.test_pipelines import KEYS, OWNER, World, run

CONFIG = {"topics": "t", "storage_options": {"AWS_SECRET_ACCESS_KEY": "a-well-kept-secret"}}


async def in_store(world: World) -> bytes:
    return b"".join(one.value for _, one in await world.metadata.scan("/pipelines/"))


def test_what_is_stored_has_nothing_of_it_and_opens_again() -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", CONFIG, OWNER)
        await world.pipelines.stop("a")
        await world.pipelines.start("a")
        stored = await in_store(world)
        assert b"well-kept" not in stored
        assert b"AWS" not in stored
        assert (await world.reload()).get("a").config == CONFIG
        assert await in_store(world) == stored, "opened, and sealed no other way"

    run(scenario)


def test_what_was_stored_in_the_open_is_sealed_at_the_start() -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", CONFIG, OWNER)
        document = json.loads(await in_store(world))
        del document["sealed"]
        document |= {"v": 2, "config": CONFIG}
        await world.metadata.put("/pipelines/a", json.dumps(document).encode())
        assert b"well-kept" in await in_store(world)
        for _ in range(2):
            pipeline = (await world.reload()).get("a")
            assert (pipeline.config, pipeline.owner) == (CONFIG, OWNER)
            assert b"well-kept" not in await in_store(world)

    run(scenario)


def test_another_key_takes_the_place_of_the_old_one() -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", CONFIG, OWNER)
        new = replace(KEYS, sealing=b"2" * 32)
        both = replace(new, old_sealing=KEYS.sealing)
        assert (await world.reload(both)).get("a").config == CONFIG
        stored = await in_store(world)
        assert (await world.reload(new)).get("a").config == CONFIG
        assert await in_store(world) == stored
        assert (await world.reload()).get("a").trouble, "the old key is good for nothing any more"

    run(scenario)


def test_without_its_key_a_pipeline_is_kept_and_does_not_run() -> None:
    async def scenario(world: World) -> None:
        await world.pipelines.create("a", "table", CONFIG, OWNER)
        stored = await in_store(world)
        pipelines = await world.reload(replace(KEYS, sealing=b"2" * 32))
        epoch = await world.worker()
        assert world.state("a") is State.FAILED
        assert "sealed with another key" in world.reason("a")
        assert "secrets.old.key" in world.reason("a")
        assert await in_store(world) == stored
        orders = await pipelines.orders("w", epoch, "", 0)
        assert orders is not None
        assert [(one.name, one.desired) for one in orders[1]] == [("a", Desired.STOPPED)]
        await pipelines.stop("a")
        assert world.state("a") is State.STOPPED
        await pipelines.restart("a")
        assert (await world.reload()).get("a").config == CONFIG
        assert not world.pipelines.get("a").trouble
        await (await world.reload(replace(KEYS, sealing=b"2" * 32))).delete("a", force=True)
        await world.pipelines.create("a", "table", CONFIG, OWNER)
        assert not world.pipelines.get("a").trouble

    run(scenario)


def test_what_is_sealed_of_one_does_not_open_as_another_one() -> None:
    async def scenario(world: World) -> None:
        for name in ("a", "b"):
            await world.pipelines.create(name, "table", {"topics": name}, OWNER)
        found = {path: json.loads(one.value) for path, one in await world.metadata.scan("/pipelines/")}
        document = found["/pipelines/b"] | {"sealed": found["/pipelines/a"]["sealed"]}
        await world.metadata.put("/pipelines/b", json.dumps(document).encode())
        assert "something else" in (await world.reload()).get("b").trouble

    run(scenario)
