"""The fields of every route's answer, as clients read them: a new one is a new line of `tests/json_fields.txt`.

A line that goes, or changes, breaks a client.  The answers are about things that are there, all of which a test makes;
`test_documents.py` has what only other worlds show.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx

from magnetar.base.names import TopicName
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandProducer, CommandSubscribe
from tests import written_rights

from .authorized_routes import THERE, full_name
from .fields import fields
from .house import House, house

GOLDEN: Final = Path(__file__).parents[2] / "json_fields.txt"
_T: Final = "GET /admin/v2/{domain:domain}/{tenant}/{namespace}/{topic}"
# Routes that answer something only in other worlds, and where their fields are written.
REFUSED: Final = {
    "DELETE /magnetar/v1/leases/{lease}": "no content",
    "DELETE /magnetar/v1/links/{topic:path}": "no content",
    "GET /admin/v2/clusters/{cluster}/namespaceIsolationPolicies": "there are no such policies",
    "GET /admin/v2/clusters/{cluster}/namespaceIsolationPolicies/{policy}": "there are no such policies",
    _T + "/ledger/{ledger_id}/entry/{entry_id}": "a message",
    _T + "/subscription/{name:path}/position/{number}": "a message",
    "GET /admin/v3/transactions/transactionMetadata/{coordinator}/{transaction}": "test_pulsar_transactions.py",
    "GET /admin/{path:path}": "what is not served",
    "POST /magnetar/v1/leases/{lease}": "no content",
    "POST /magnetar/v1/links/{topic:path}/entries": "test_links.py",
    "POST /magnetar/v1/links/{topic:path}/positions": "test_links.py",
    "POST /magnetar/v1/links/{topic:path}/records": "test_links.py",
    "POST /magnetar/v1/links/{topic:path}/report": "no content",
    "POST /magnetar/v1/links/{topic:path}/schemas": "test_links.py",
    "POST /magnetar/v1/links/{topic:path}/subscriptions": "test_links.py",
    "POST /magnetar/v1/pipelines": "test_documents.py",
    "POST /magnetar/v1/worker/end": "no content",
    "POST /magnetar/v1/worker/lease": "test_documents.py",
    "POST /magnetar/v1/worker/orders": "test_documents.py",
    "POST /magnetar/v1/worker/report": "no content",
    "POST /magnetar/v1/worker/tokens": "test_documents.py",
    "PUT /magnetar/v1/links/{topic:path}": "test_links.py",
}
ABOUT_ROUTES: Final = "GET /openapi.json"  # its names are those of the other routes
WIDE: Final = {**THERE, "topic": "wide"}
PARTITION: Final = {**THERE, "topic": "wide-partition-0"}


def is_data(key: str) -> bool:
    """Whether a key is the name or the number of a thing."""
    return key in THERE.values() or "/" in key or key.isdecimal()


async def connect(found: House) -> None:
    """Make a topic with two partitions, and a consumer and a producer of one."""
    await found.door.broker.pulsar_topics.create(TopicName.parse(full_name(WIDE)), 2)
    client, topic = await found.door.connected(), full_name(PARTITION)
    kind = CommandSubscribe.Shared
    consumer = CommandSubscribe(topic=topic, subscription="s", subType=kind, consumer_id=1, request_id=1)
    await client.ask(consumer, BaseCommand.SUCCESS)
    producer = CommandProducer(topic=topic, producer_id=1, request_id=2)
    await client.ask(producer, BaseCommand.PRODUCER_SUCCESS)


async def answers(found: House) -> AsyncIterator[tuple[str, httpx.Response]]:
    """Those of all routes; of partitioned topics, and of topics with clients, after all others."""
    of_wide = [route for route in found.routes if "/partitioned-" in route and route.startswith("GET ")]
    for route in (one for one in found.routes if one not in (ABOUT_ROUTES, *of_wide)):
        await found.furnish()
        yield route, await found.ask(route, THERE)
    await connect(found)
    for route in (*of_wide, f"{_T}/internal-info"):
        yield route, await found.ask(route, WIDE)
    for route in (f"{_T}/stats", f"{_T}/internalStats"):
        yield route, await found.ask(route, PARTITION)


def test_each_field_of_each_answer_is_written_down(tmp_path: Path) -> None:
    async def main() -> tuple[set[str], set[str]]:
        lines: set[str] = set()
        refused: set[str] = set()
        async with house(tmp_path) as found:
            async for route, response in answers(found):
                if response.status_code < 400:
                    if response.headers.get("content-type") == "application/json":
                        lines |= {f"{route} {name}\n" for name in fields(response.json(), is_data)}
                elif route.startswith("GET ") or " /magnetar/" in route:
                    refused.add(route)
        return lines, refused

    lines, refused = asyncio.run(main())
    assert refused == REFUSED.keys()
    written_rights.check(sorted(lines), GOLDEN)
