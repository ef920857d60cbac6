"""Whom a pipeline's query speaks for, and for how long: its owner, by a token of the server's own."""

import json

import pytest

from magnetar.broker.jobs.errors import WorkerFenced
from magnetar.broker.jobs.model import LEASE_S, OWNER_TOKEN_S
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import ANONYMOUS, Principal
from tests.unit.broker.test_pipelines import OWNER, World, run


class TestOwners:
    def test_an_owner_is_kept_and_one_from_before_there_were_any_is_anonymous(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            old = json.loads((await world.metadata.scan("/pipelines/"))[0][1].value)
            assert old.pop("owner") == ["User", "alice"]
            del old["sealed"]
            await world.metadata.put("/pipelines/b", json.dumps({**old, "v": 1, "config": {}}).encode())
            pipelines = await world.reload()
            assert (pipelines.get("a").owner, pipelines.get("b").owner) == (OWNER, ANONYMOUS)
            await pipelines.restart("a")
            assert (await world.reload()).get("a").owner == OWNER

        run(scenario)

    def test_a_token_speaks_for_the_owner_until_it_ends(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a.b-c", "table", {}, OWNER)
            epoch = await world.worker()
            token = world.pipelines.tokens("w", epoch, ["a.b-c", "no"])["a.b-c"]
            pipeline, of_epoch, ends_s = world.pipelines.speaking(token)
            assert (pipeline.owner, of_epoch) == (OWNER, epoch)
            assert ends_s == world.clock.monotonic() + OWNER_TOKEN_S
            world.clock.step(-3_600)  # it lives no longer for a wall clock that is set back
            assert world.pipelines.speaking(token)[2] == ends_s
            world.clock.step(3_600)
            await world.reload()  # a server that starts again knows it
            assert world.pipelines.speaking(token)[0].name == "a.b-c"
            world.clock.advance(OWNER_TOKEN_S - 1)
            world.pipelines.lease.renew("w", epoch)
            assert world.pipelines.speaking(token)[0].name == "a.b-c"
            world.clock.advance(1)
            with pytest.raises(AuthenticationFailed, match="has ended"):
                world.pipelines.speaking(token)

        run(scenario)

    def test_a_token_is_good_for_nothing_without_its_worker_or_its_pipeline(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await world.pipelines.create("b", "table", {}, Principal("User", "bob"))
            epoch = await world.worker()
            tokens = world.pipelines.tokens("w", epoch, ["a", "b"])
            world.clock.advance(LEASE_S)  # nothing was heard of the worker
            for token in tokens.values():
                with pytest.raises(AuthenticationFailed, match="no worker runs"):
                    world.pipelines.speaking(token)
            assert await world.worker("v") == epoch + 1
            with pytest.raises(AuthenticationFailed, match="not made for this pipeline"):
                world.pipelines.speaking(tokens["a"])
            with pytest.raises(WorkerFenced):
                world.pipelines.tokens("w", epoch, ["a"])
            again = world.pipelines.tokens("v", epoch + 1, ["a"])["a"]
            a = world.pipelines.get("a")
            assert [world.pipelines.is_run_by(a, one) for one in (epoch, epoch + 1)] == [False, True]
            await world.pipelines.delete("a", force=True)
            assert not world.pipelines.is_run_by(a, epoch + 1)
            with pytest.raises(AuthenticationFailed, match="no worker runs"):
                world.pipelines.speaking(again)
            await world.pipelines.create("a", "table", {}, Principal("User", "mallory"))
            with pytest.raises(AuthenticationFailed, match="not made for this pipeline"):
                world.pipelines.speaking(again)  # the name is the same, and the owner another one
            assert not world.pipelines.is_run_by(a, epoch + 1)
            world.clock.advance(LEASE_S)
            assert not world.pipelines.is_run_by(world.pipelines.get("a"), epoch + 1)

        run(scenario)

    def test_what_was_changed_or_made_up_is_no_token(self) -> None:
        async def scenario(world: World) -> None:
            await world.pipelines.create("a", "table", {}, OWNER)
            await world.pipelines.create("b", "table", {}, Principal("User", "bob"))
            epoch = await world.worker()
            token = world.pipelines.tokens("w", epoch, ["a"])["a"]
            prefix, ends, mac, name = token.split(".")
            wrong = [
                ".".join((prefix, ends, mac, "b")),
                ".".join((prefix, str(int(ends) + 1), mac, name)),
                ".".join((prefix, ends, "0" * 64, name)),
                ".".join((prefix, ends, "", name)),
                ".".join((prefix, "\u0663", mac, name)),
                ".".join((prefix, ends, "\u0663" * 64, name)),
                ".".join((prefix, "", mac, name)),
                ".".join((prefix, "9" * 30, mac, name)),
                ".".join((prefix, ends, mac)),
                f"{prefix}.",
                "",
                "x" * 10_000,
                token + "x" * 1000,
                token.removeprefix("magnetar-"),
            ]
            for one in wrong:
                with pytest.raises(AuthenticationFailed) as caught:
                    world.pipelines.speaking(one)
                assert mac not in str(caught.value)
            other = Pipelines(world.metadata, world.clock, world.cursors)
            await other.load()
            other.lease.renew("w", epoch)
            with pytest.raises(AuthenticationFailed):
                other.speaking(token)  # by another key

        run(scenario)
