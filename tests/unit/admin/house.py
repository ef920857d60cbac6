"""A broker with a tenant in it and everything that a tenant has, for tests that ask every route."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
from starlette.applications import Starlette

from magnetar.admin.access import Access
from magnetar.admin.app import create_app
from magnetar.admin.routing import Route
from magnetar.base.errors import BrokerError
from magnetar.base.metrics import Metrics
from magnetar.base.names import TopicName
from magnetar.broker.jobs.function_model import new_function
from magnetar.broker.policy.model import Tenant
from magnetar.broker.schemas.model import Schema, SchemaType
from magnetar.broker.security.model import ANONYMOUS, Caller, Operation, Resource, ResourceType
from magnetar.testing.pulsar import PulsarDoor, running_door

from .authorized_routes import THERE, WORDS, full_name, request
from .world import World

_FUNCTION: Final = new_function(
    THERE["tenant"],
    THERE["namespace"],
    THERE["name"],
    {"className": "f.process", "inputs": ["in"]},
    "f.py",
    ANONYMOUS,
)


SOURCE: Final = "source.acme.house.s"  # the pipeline that is the source of `THERE`


class Rules:
    """An authorizer that notes what it is asked, and denies everything, or what is done to the resources `denied`."""

    tells_hosts_apart = False

    def __init__(self) -> None:
        self.denies = False
        self.denied: set[Resource] = set()
        self.asked: list[tuple[Operation, Resource]] = []

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        self.asked.append((operation, resource))
        if self.denies:
            assert caller == Caller(ANONYMOUS, "127.0.0.1")
        return not self.denies and resource not in self.denied

    def allows_any(self, caller: Caller, operation: Operation, kind: ResourceType) -> bool:
        raise AssertionError("the admin API asks for a resource by its name")

    def questions(self) -> list[str]:
        """As the golden file has them, in the order in which they were asked first."""
        return list(dict.fromkeys(f"{one.name} {resource.type.value}" for one, resource in self.asked))


class House:
    """A broker with a tenant in it, and a client of its HTTP."""

    def __init__(self, door: PulsarDoor, app: Starlette, http: httpx.AsyncClient, rules: Rules) -> None:
        self.door = door
        self.http = http
        self.rules = rules
        self.routes = {
            f"{method} {route.path}": route
            for route in app.routes
            if isinstance(route, Route)
            for method in sorted(route.methods or ())
        }
        self.unknown = [route for route in app.routes if not isinstance(route, Route)]

    async def ask(
        self, route: str, world: Mapping[str, str], flags: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """A request to a route, about what is in `world`."""
        asked = request(route, world)
        params = {**asked.params, **(flags or {})}
        return await self.http.request(
            asked.method, asked.path, params=params, headers=asked.headers, content=asked.content
        )

    async def everything(self) -> dict[str, Any]:
        """All that a request could change."""
        broker = self.door.broker
        partitions = [one for topic in broker.topics for one in topic.open_partitions]
        return {
            "stored": [(path, one.version, one.value) for path, one in await self.door.metadata.scan("/")],
            "topics": sorted(
                (one.name.full, one.partition_count, one.is_terminated) for one in broker.topics
            ),
            "logs": [(one.log.name, one.log.log_start, one.log.next_offset) for one in partitions],
            "subscriptions": [
                (one.log.name, name, broker.subscription_admin.cursor(one, name).mark_delete)
                for one in partitions
                for name in broker.subscriptions.names(one)
            ],
            "leases": len(broker.segments.leases),  # type: ignore[arg-type]
            "worker": broker.pipelines.lease.holder,
        }

    async def furnish(self) -> None:
        """Have everything that `THERE` names, made anew where a request has removed it."""
        broker, topic = self.door.broker, TopicName.parse(full_name(THERE))
        denied, self.rules.denies = self.rules.denies, False
        found = broker.topics.find(topic)
        if found is not None and (found.is_terminated or not found.partition(0).log.high_watermark):
            await broker.delete_topic(found)
        namespace = f"{THERE['tenant']}/{THERE['namespace']}"
        for make in (
            lambda: broker.namespaces.create_tenant(Tenant(THERE["tenant"])),
            lambda: broker.resource_groups.put(THERE["group"], {"dispatchRateInMsgs": 1000}),
            lambda: broker.namespaces.create(namespace, {"message_ttl_in_seconds": 60}),
            lambda: broker.pulsar_topics.create(topic),
            lambda: broker.schemas.register(topic, Schema(SchemaType.STRING), may_update=True),
            lambda: broker.pipelines.create(THERE["name"], "table", {"topic": topic.full}, ANONYMOUS),
            lambda: broker.pipelines.create(
                SOURCE, "source", {"format": "rate", "topic": topic.full, "options": {}}, ANONYMOUS
            ),
            lambda: broker.functions.create(_FUNCTION, b"def process(input): ..."),
        ):
            await _unless_there(make)
        function = broker.functions.get(_FUNCTION.tenant, _FUNCTION.namespace, _FUNCTION.name)
        await broker.functions.put_state(function, WORDS["key"], b"v", None)
        partition = broker.topics.get(topic).partition(0)
        if not partition.log.high_watermark:
            await World(self.door, self.http).publish(3, partition=partition)
        await broker.subscription_admin.create(partition, THERE["name"], 0)
        self.rules.denies = denied
        self.rules.asked.clear()


async def _unless_there(make: Callable[[], Awaitable[object]]) -> None:
    try:
        await make()
    except BrokerError as error:
        if not error.code.endswith("_EXISTS"):
            raise


@asynccontextmanager
async def house(folder: Path) -> AsyncIterator[House]:
    rules = Rules()
    async with running_door(folder, authorizer=rules) as door:
        app = create_app(door.broker.cases, Metrics(), access=Access.of(["test"]))
        transport = httpx.ASGITransport(app, client=("127.0.0.1", 4711))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            made = House(door, app, http, rules)
            await made.furnish()
            yield made
