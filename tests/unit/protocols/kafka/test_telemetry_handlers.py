"""Metrics that clients push, from a request's bytes to a response's bytes (KIP-714)."""

import asyncio
import gzip
from collections.abc import Callable
from typing import Any

import cramjam
import pytest

from magnetar.base.exposition import render
from magnetar.base.metrics import Metrics
from magnetar.broker.telemetry.model import TELEMETRY_BYTES_MAX
from magnetar.broker.telemetry.subscriptions import shown
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.api_versions import ApiVersionsRequest
from magnetar.wire.kafka.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from magnetar.wire.kafka.messages.push_telemetry import PushTelemetryRequest
from tests.unit.protocols.kafka.test_config_admin import METRICS, SET, change, describe
from tests.unit.wire.test_otlp import WHOLE

Run = Callable[..., None]
NOTHING = bytes(16)


async def ask(client: Any, instance_id: bytes = NOTHING) -> Any:
    return await client.ask("get_telemetry_subscriptions", 0, GetTelemetrySubscriptionsRequest(instance_id))


async def push(client: Any, told: Any, metrics: bytes = b"", compression: int = 0, number: int = 0) -> str:
    request = PushTelemetryRequest(
        told.client_instance_id, told.subscription_id + number, False, compression, metrics
    )
    return ErrorCode((await client.ask("push_telemetry", 0, request)).error_code).name


def exposed(client: Any) -> list[str]:
    metrics = Metrics()
    client.broker.cases.metrics.declare(metrics)
    lines = render(metrics).decode().splitlines()
    return [line for line in lines if line.startswith("magnetar_client_metric{")]


def test_a_client_that_no_subscription_is_for_is_asked_for_nothing(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        told = await ask(client)
        assert (told.error_code, told.requested_metrics, told.push_interval_ms) == (0, [], 300_000)
        assert told.accepted_compression_types == [4, 3, 1, 2]
        assert (told.telemetry_max_bytes, told.delta_temporality) == (TELEMETRY_BYTES_MAX, False)
        assert told.client_instance_id != NOTHING
        early = await ask(client, told.client_instance_id)
        assert early.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    with_broker(scenario)


def test_a_server_that_asks_no_client_for_metrics_does_not_say_that_it_takes_any(with_broker: Run) -> None:
    """Each of librdkafka's clients prints a line when it sees these APIs."""

    async def advertised(client: Any) -> set[int]:
        told = await client.ask("api_versions", 3, ApiVersionsRequest("test", "1"))
        return {71, 72} & {row.api_key for row in told.api_keys}

    async def scenario(client: Any) -> None:
        assert await advertised(client) == set()
        await change(client, METRICS, "all", ("metrics", SET, "*"))
        assert await advertised(client) == {71, 72}

    with_broker(scenario)


@pytest.mark.parametrize(
    ("compression", "compressed"),
    [
        (0, WHOLE),
        (1, gzip.compress(WHOLE)),
        (2, bytes(cramjam.snappy.compress_raw(WHOLE))),
        (3, bytes(cramjam.lz4.compress(WHOLE))),
        (4, bytes(cramjam.zstd.compress(WHOLE))),
    ],
)
def test_what_a_client_pushes_is_in_the_servers_metrics(
    with_broker: Run, compression: int, compressed: bytes
) -> None:
    async def scenario(client: Any) -> None:
        assert (await change(client, METRICS, "all", ("metrics", SET, "*")))[0] == "NONE"
        told = await ask(client)
        assert told.requested_metrics == ["*"]
        assert await push(client, told, compressed, compression) == "NONE"
        shared = f'client_id="test",client_instance_id="{shown(told.client_instance_id)}"'
        assert exposed(client) == [
            f'magnetar_client_metric{{attributes="group=g,node=-1",{shared},metric="sent.total"}} -7.0',
            f'magnetar_client_metric{{attributes="group=g",{shared},metric="rate"}} 1.5',
        ]

    with_broker(scenario)


def test_changes_of_one_subscription_at_once_all_hold(with_broker: Run) -> None:
    configs = {"metrics": "*", "interval.ms": "1000", "match": "client_id=.*"}

    async def scenario(client: Any) -> None:
        client.metadata.hold()  # so that each is under way before the first one is stored
        changes = [
            asyncio.ensure_future(change(client, METRICS, "s", (key, SET, text)))
            for key, text in configs.items()
        ]
        for _ in range(10):
            await asyncio.sleep(0)
        client.metadata.release()
        await asyncio.gather(*changes)
        row = await describe(client, METRICS, "s")
        assert {one.name: one.value for one in row.configs} == configs
        told = [line["details"]["subscription"] for line in client.audit.take() if line["event"] == "change"]
        assert told == ["s"] * 3

    with_broker(scenario)


def test_a_subscription_goes_by_what_a_program_calls_itself(with_broker: Run) -> None:
    async def scenario(client: Any) -> None:
        await change(
            client, METRICS, "s", ("metrics", SET, "a."), ("match", SET, "client_software_name=prog")
        )
        assert (await ask(client)).requested_metrics == []
        answer = await client.ask(
            "api_versions", 3, ApiVersionsRequest(client_software_name="prog", client_software_version="1")
        )
        assert answer.error_code == ErrorCode.NONE
        assert (await ask(client)).requested_metrics == ["a."]

    with_broker(scenario)


def test_pushes_that_cannot_be_taken_are_refused_by_kafkas_codes(with_broker: Run) -> None:
    bomb = gzip.compress(bytes(TELEMETRY_BYTES_MAX + 1))

    async def scenario(client: Any) -> None:
        for code, refused in (
            ("UNKNOWN_SUBSCRIPTION_ID", {"number": 1}),
            ("UNSUPPORTED_COMPRESSION_TYPE", {"compression": 9}),
            ("TELEMETRY_TOO_LARGE", {"metrics": bytes(TELEMETRY_BYTES_MAX + 1)}),
            ("TELEMETRY_TOO_LARGE", {"metrics": bomb, "compression": 1}),
            ("INVALID_RECORD", {"metrics": b"\xff"}),
            ("INVALID_RECORD", {"metrics": b"\xff", "compression": 4}),
        ):
            assert await push(client, await ask(client), **refused) == code, refused
        told = await ask(client)
        assert await push(client, told) == "NONE"
        assert await push(client, told) == "THROTTLING_QUOTA_EXCEEDED"
        told.client_instance_id = NOTHING
        assert await push(client, told) == "INVALID_REQUEST"
        assert exposed(client) == []

    with_broker(scenario)
