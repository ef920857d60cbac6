"""What a login that fails leaves in memory: nothing that only the cycle collector can free (`circles.py`)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from magnetar.base.settings_connections import ConnectionRules
from magnetar.wire.kafka.error_codes import ErrorCode
from tests.unit.circles import circles_of
from tests.unit.protocols.kafka.test_login import RIGHT, SETTINGS, Connection

Run = Callable[..., None]

SCRAM = replace(SETTINGS, mechanisms=("SCRAM-SHA-256",))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (SETTINGS, b"\0alice\0wrong"),
        (SETTINGS, b"\0mallory\0wrong"),
        (SETTINGS, b"bob" + RIGHT),
        (SETTINGS, b"nonsense"),
        (SCRAM, b"nonsense"),
    ],
)
def test_a_failed_login_leaves_no_circle(with_broker: Run, settings: Any, message: bytes) -> None:
    async def scenario(client: Any) -> None:
        async def live() -> None:
            one = Connection(client, settings)
            await one.shake_hands(settings.mechanisms[0])
            assert (await one.authenticate(message)).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            one.session.closed()

        assert not await circles_of(live)

    with_broker(scenario)


def test_a_login_without_a_place_leaves_no_circle(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        client.broker.admission.govern(ConnectionRules(per_principal_max=0))

        async def live() -> None:
            one = Connection(client)
            await one.shake_hands()
            assert (await one.authenticate(RIGHT)).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
            one.session.closed()

        assert not await circles_of(live)

    with_broker(scenario)
