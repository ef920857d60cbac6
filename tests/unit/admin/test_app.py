"""What the HTTP side says about a broker."""

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.admin import app, routing
from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.base.metrics import Metrics
from magnetar.broker.broker import Broker
from magnetar.broker.topics.model import NewTopic
from magnetar.broker.topics.topic import Topic
from magnetar.broker.upkeep import metrics as broker_metrics
from magnetar.ledger.cursor import Cursor
from magnetar.ledger.cursor_store import CursorKey

MakeBroker = Callable[[], Broker]
HEALTH_PATHS = ("/admin/v2/brokers/health", "/admin/v2/brokers/ready", "/status.html")


def ask(make_broker: MakeBroker, scenario: Callable[[Broker, httpx.AsyncClient], Awaitable[None]]) -> None:
    async def main() -> None:
        broker = make_broker()
        transport = httpx.ASGITransport(create_app(broker.cases, Metrics(), access=Access.of(["test"])))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await scenario(broker, client)

    asyncio.run(main())


async def samples(client: httpx.AsyncClient) -> dict[tuple[str, ...], float]:
    """By name and label values, these in the order of the label names."""
    response = await client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def made(broker: Broker, name: str, partition_count: int = 1) -> Topic:
    await broker.topics.create(
        [broker.topics.plan(NewTopic(broker.kafka_topics.name(name), partition_count))]
    )
    return broker.topics.get(broker.kafka_topics.name(name))


async def commit(broker: Broker, group: str, topic: Topic, partition: int, offset: int) -> None:
    await broker.cursors.commit({CursorKey(group, topic.name.full, partition): Cursor(mark_delete=offset)})


@pytest.mark.parametrize("path", HEALTH_PATHS)
def test_a_working_server_says_ok(make_broker: MakeBroker, path: str) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        response = await client.get(path)
        assert (response.status_code, response.text.lower()) == (200, "ok")

    ask(make_broker, scenario)


def test_health_shows_each_part_by_name(make_broker: MakeBroker) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        broker.health.note("mood", lambda: "the weather is bad")
        for path in ("/health", "/ready"):
            response = await client.get(path)
            assert (response.status_code, response.json()) == (
                200,
                {
                    "status": "ok",
                    "checks": {"tasks": None, "metadata_write": None},
                    "notes": {"mood": "the weather is bad"},
                },
            )

    ask(make_broker, scenario)


@pytest.mark.parametrize("path", [*HEALTH_PATHS, "/health", "/ready"])
def test_a_server_that_cannot_write_metadata_says_503(make_broker: MakeBroker, path: str) -> None:
    """The question was a look into a dictionary, which nothing can make fail."""

    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        await broker.metadata.close()
        response = await client.get(path)
        assert (response.status_code, "A write of metadata fails" in response.text) == (503, True)

    ask(make_broker, scenario)


@pytest.mark.parametrize("path", [*HEALTH_PATHS, "/health", "/ready"])
def test_a_server_of_which_a_task_has_died_says_503(make_broker: MakeBroker, path: str) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        async def work() -> None:
            raise ValueError("nobody foresaw this")

        task = asyncio.get_running_loop().create_task(work())
        broker.upkeep.watch("the test", task)
        with suppress(ValueError):
            await task
        response = await client.get(path)
        assert (response.status_code, "The work of the test has ended" in response.text) == (503, True)

    ask(make_broker, scenario)


def test_topics_and_the_partitions_in_use_are_shown(make_broker: MakeBroker) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        topic = await made(broker, "t", 3)
        await made(broker, "tenant/space/u", 2)
        log = topic.partition(1).log
        log.log_start, log.high_watermark = 3, 10
        found = await samples(client)
        assert found["pulsar_topics_count", "public/default"] == 1
        assert found["pulsar_topics_count", "tenant/space"] == 1
        assert found[("magnetar_partitions",)] == 5
        name = "persistent://public/default/t-partition-1"
        assert found["magnetar_log_start_offset", "public/default", name] == 3
        assert found["magnetar_log_end_offset", "public/default", name] == 10
        assert [key for key in found if key[0] == "pulsar_storage_size"] == [
            ("pulsar_storage_size", "public/default", name)  # no client has asked for the other four
        ]

    ask(make_broker, scenario)


def test_lag_is_what_is_left_to_read(make_broker: MakeBroker) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        topic = await made(broker, "t", 3)
        for index in (0, 1):
            log = topic.partition(index).log
            log.log_start, log.high_watermark = 3, 10
        await commit(broker, "behind", topic, 0, 5)
        await commit(broker, "behind", topic, 1, 1)  # below the log's start: seven are left
        await commit(broker, "behind", topic, 2, 4)  # never opened: nothing was written to it
        await commit(broker, "done", topic, 0, 10)
        found = await samples(client)
        lags = {key[1:]: value for key, value in found.items() if key[0] == "kafka_consumergroup_lag"}
        assert lags == {
            ("behind", "0", "t"): 5,
            ("behind", "1", "t"): 7,
            ("behind", "2", "t"): 0,
            ("done", "0", "t"): 0,
        }
        name = "persistent://public/default/t-partition-0"
        assert found["pulsar_subscription_back_log", "public/default", "behind", name] == 5
        assert found["kafka_consumergroup_current_offset", "behind", "0", "t"] == 5
        assert found["magnetar_groups", "Empty"] == 2

    ask(make_broker, scenario)


def test_offsets_of_a_deleted_topic_are_not_shown(make_broker: MakeBroker) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        topic = await made(broker, "t")
        await commit(broker, "g", topic, 0, 5)
        await broker.delete_topic(topic)
        assert not [key for key in await samples(client) if key[0] == "kafka_consumergroup_lag"]

    ask(make_broker, scenario)


def test_more_offsets_than_fit_are_counted_instead(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        monkeypatch.setattr(broker_metrics, "CHILDREN_MAX", 2)
        topic = await made(broker, "t")
        for group in ("a", "b", "c"):
            await commit(broker, group, topic, 0, 5)
        found = await samples(client)
        assert len([key for key in found if key[0] == "kafka_consumergroup_lag"]) == 2
        assert found[("magnetar_group_offsets_not_shown",)] == 1

    ask(make_broker, scenario)


def test_metrics_leave_the_event_loop_to_the_clients(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        loop = asyncio.get_running_loop()
        rendered_beside: list[bool] = []

        def render(_: Metrics) -> bytes:
            # Would wait for ever if this thread were the loop's.
            rendered_beside.append(asyncio.run_coroutine_threadsafe(asyncio.sleep(0, True), loop).result(10))
            return b""

        monkeypatch.setattr(app, "render", render)
        assert (await client.get("/metrics")).status_code == 200
        assert rendered_beside == [True]

    ask(make_broker, scenario)


def test_the_schema_is_there_and_nothing_is_fetched_from_elsewhere(make_broker: MakeBroker) -> None:
    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        schema: dict[str, Any] = (await client.get("/openapi.json")).json()
        assert {"/metrics", *HEALTH_PATHS, "/admin/v2/tenants"} <= set(schema["paths"])
        assert (await client.get("/docs")).status_code == 404

    ask(make_broker, scenario)


def test_operations_are_called_by_method_and_path_alone(make_broker: MakeBroker) -> None:
    """Generated clients name functions by these, and the names of our handlers are none of their business."""

    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        paths = (await client.get("/openapi.json")).json()["paths"]
        ids = {
            (path, method): one["operationId"]
            for path, found in paths.items()
            for method, one in found.items()
        }
        assert ids["/admin/v2/tenants/{tenant}", "put"] == "put_admin_v2_tenants__tenant_"
        for (path, method), said in ids.items():
            assert said == re.sub(r"[^A-Za-z0-9_]", "_", f"{method}{path}")
        assert len({*ids.values()}) == len(ids)

    ask(make_broker, scenario)


def test_the_schema_is_made_once_and_beside_the_event_loop(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop had made it: 0.8 s for the first, 0.08 s for each one after that, while all clients waited."""
    made_on = []
    make = routing.document

    def document(*arguments: Any) -> dict[str, Any]:
        made_on.append(threading.current_thread())
        return make(*arguments)

    monkeypatch.setattr(routing, "document", document)

    async def scenario(broker: Broker, client: httpx.AsyncClient) -> None:
        answers = await asyncio.gather(*(client.get("/openapi.json") for _ in range(3)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
        assert len({answer.content for answer in answers}) == 1
        assert len(made_on) == 1
        assert made_on[0] is not threading.main_thread()

    ask(make_broker, scenario)
