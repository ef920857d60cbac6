"""Answers in which Apache Pulsar 4.0.8 is followed to the letter, as its own tools judge by them."""

from pathlib import Path
from typing import Any

from .world import T, World, run


def test_looking_for_old_messages_in_a_long_backlog_is_well_though_there_are_none(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("PUT", f"{T}/subscription/s", {"ledgerId": -1, "entryId": -1}, 204)
        await world.publish(1, batch=999)
        for path in ("subscription/s", "all_subscription"):
            await world.ask("POST", f"{T}/{path}/expireMessages/3600", status=409)
        await world.publish()
        for path in ("subscription/s", "all_subscription"):
            await world.ask("POST", f"{T}/{path}/expireMessages/3600", status=204)
        assert await world.backlog() == 1000

    run(tmp_path, scenario)


def test_the_state_of_a_log_has_pulsars_names(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        async def state() -> Any:
            return (await world.ask("GET", f"{T}/internalStats"))["state"]

        assert await state() == "ClosedLedger"
        await world.publish()
        assert await state() == "LedgerOpened"
        await world.ask("POST", f"{T}/terminate")
        assert await state() == "Terminated"

    run(tmp_path, scenario)
