"""What a refused command leaves in memory: nothing that only the cycle collector can free (`circles.py`)."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from magnetar.testing.pulsar import PulsarDoor
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand
from tests.unit.circles import circles_of
from tests.unit.protocols.pulsar.authorized_commands import DENIED, TOPIC, asking
from tests.unit.protocols.pulsar.test_pulsar_denied import Rules, WithDoor, furnished, refused
from tests.unit.protocols.pulsar.test_pulsar_login import FAILED, connect_command, refusal, token, with_logins

MISSING = "persistent://public/missing/t"


@pytest.mark.parametrize("topic", [TOPIC, MISSING])
def test_a_command_without_its_right_leaves_no_circle(with_door: WithDoor, topic: str) -> None:
    rules = Rules()

    async def scenario(door: PulsarDoor) -> None:
        left: dict[str, Counter[str]] = {}
        client = await furnished(door)
        rules.denies = True
        for kind in DENIED:
            for body, *_ in asking(topic)[kind]:
                circles = await circles_of(partial(refused, door, client, body))
                if circles:
                    left[BaseCommand.Type.Name(kind)] = circles
        assert not left

    with_door(scenario, authorizer=rules)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"auth_method_name": "token", "auth_data": token(life_s=-1)},
        {"auth_method_name": "token", "auth_data": b"nonsense"},
    ],
)
def test_a_failed_login_leaves_no_circle(tmp_path: Path, fields: dict[str, Any]) -> None:
    async def scenario(door: PulsarDoor) -> None:
        async def live() -> None:
            client = door.client()
            client.say(connect_command(**fields))
            assert refusal(client) == FAILED

        assert not await circles_of(live)

    with_logins(tmp_path, scenario)
