"""Every route and the rights that it asks for: what a caller without them is answered, and that nothing changes then.

`tests/authorization/rest.txt` holds what each route asks, and the status of a refusal.  A new route that asks nothing
and has no reason in `ASKS_NOTHING` fails.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx

from magnetar.admin.app import ROUTERS
from magnetar.base.names import TopicName
from magnetar.broker.security.model import (
    ANONYMOUS,
    CLUSTER,
    pipeline_resource,
    subscription_resource,
    topic_resource,
)
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand, CommandSubscribe
from tests import written_rights

from .authorized_routes import (
    ASKS_NOTHING,
    BODIES,
    FLAGS,
    FORMS,
    LISTS,
    MISSING,
    ROWS,
    THERE,
    full_name,
)
from .house import SOURCE, House, house

_JSON: Final = {"content-type": "application/json"}
GOLDEN: Final = written_rights.FOLDER / "rest.txt"

# What the worker and Spark's readers do all the time: only a refusal of it is in the audit log.
UNRECORDED: Final = frozenset(("GET /admin/v2/brokers/ready",))  # which tries out a write


def asking(found: House) -> list[str]:
    return [route for route in found.routes if route not in ASKS_NOTHING]


def test_no_route_is_left_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with house(tmp_path) as found:
            of_modules = {
                f"{method} {one.path}"
                for router in ROUTERS
                for one in router.routes
                for method in one.methods or ()
            }
            assert found.routes.keys() == of_modules | {"GET /metrics", "GET /openapi.json"}
            assert not found.unknown, "what Starlette serves beside the routes, these tests do not ask"
            assert not ASKS_NOTHING.keys() - found.routes.keys(), "a reason for what is no route any more"
            assert not (LISTS.keys() | ROWS | BODIES.keys() | FORMS.keys()) - found.routes.keys()

    asyncio.run(main())


def test_a_denied_caller_is_told_so_and_nothing_changes(tmp_path: Path) -> None:
    """What is there and what is not are denied alike."""

    async def main() -> None:
        async with house(tmp_path) as found:
            before = await found.everything()
            found.rules.denies = True
            for route in asking(found):
                answers = [
                    _without_names(await _refused(found, route, world, flags))
                    for world in (THERE, MISSING)
                    for flags in ({}, FLAGS)
                ]
                assert all(one == answers[0] for one in answers), route
                _check_refusal(route, *answers[0])
                assert await found.everything() == before, f"{route} has changed something"

    asyncio.run(main())


# Routes that ask for more than one thing, and whose caller needs the right to all of them.
NEEDS_ALL: Final = frozenset(
    (
        "POST /admin/v2/namespaces/{tenant}/{namespace}/subscriptionAuthMode",
        "POST /admin/v3/functions/{tenant}/{namespace}/{name}/trigger",
        "POST /magnetar/v1/admissions",
        "POST /magnetar/v1/positions",
    )
)


def test_a_caller_without_one_of_several_rights_changes_nothing(tmp_path: Path) -> None:
    """Not even with the rights that the route asks for before that one."""
    lines = (line.partition(": ") for line in GOLDEN.read_text().splitlines())
    several = [route for route, _, asked in lines if ", " in asked.partition(" > ")[0]]
    refused: set[str] = set()

    async def main() -> None:
        async with house(tmp_path) as found:
            for route in several:
                await found.furnish()
                await found.ask(route, THERE)
                for resource in list(dict.fromkeys(one for _, one in found.rules.asked))[1:]:
                    await found.furnish()
                    before = await found.everything()
                    found.door.audit.take()
                    found.rules.denied = {resource}
                    await found.ask(route, THERE)
                    found.rules.denied = set()
                    if any(line["event"] == "refusal" for line in found.door.audit.take()):
                        refused.add(route)
                        assert await found.everything() == before, f"{route} has changed something"

    asyncio.run(main())
    assert refused == NEEDS_ALL


async def _refused(
    found: House, route: str, world: Mapping[str, str], flags: Mapping[str, str]
) -> httpx.Response:
    """The answer to a request without rights, of which the audit log has one line for the one that was missing."""
    found.door.audit.take()
    found.rules.asked.clear()
    response = await found.ask(route, world, flags)
    lines = found.door.audit.take()
    if route in LISTS:
        assert not lines, route
        return response
    (line,) = lines
    operation, resource = found.rules.asked[-1]
    said = [line[name] for name in ("event", "operation", "resource_type", "resource")]
    assert said == ["refusal", operation.name, resource.type.value, resource.name], route
    assert line.get("topic", "") == resource.topic
    who = [line[name] for name in ("principal", "host", "door", "listener")]
    assert who == ["User:ANONYMOUS", "127.0.0.1", "http", "http"]
    return response


def _without_names(response: httpx.Response) -> tuple[int, Any]:
    """Status and content, with the reasons' resources taken out."""
    text = re.sub(r"(is not authorized to [A-Z_]+ [a-z ]+?) [^ \"]+\"", r'\1 X"', response.text)
    for word in ("tenant", "namespace", "topic", "name"):
        text = text.replace(full_name(MISSING), full_name(THERE)).replace(
            f'"{MISSING[word]}"', f'"{THERE[word]}"'
        )
    return response.status_code, json.loads(text)


_REASON: Final = re.compile(r"User:ANONYMOUS is not authorized to [A-Z_]+ [a-z ]+ X")


def _check_refusal(route: str, status: int, content: Any) -> None:
    if route in LISTS:
        assert (status, content) == (200, LISTS[route]), route
    elif route in ROWS:
        (row,) = content["partitions"]
        assert (status, row["error"]) == (200, "TOPIC_NOT_AUTHORIZED"), (route, content)
        assert _REASON.fullmatch(row["reason"]), route
        assert row.keys() == {"topic", "partition", "error", "reason"}, route
    elif " /magnetar/" in route:
        assert status == 403, (route, status, content)
        assert content["error"].endswith("_NOT_AUTHORIZED"), (route, content)
        assert _REASON.fullmatch(content["reason"]), route
    else:
        assert status in (401, 403), (route, status, content)
        assert content.keys() == {"reason"}, route
        assert _REASON.fullmatch(content["reason"]), (route, content)


def test_what_each_route_asks_is_written_down(tmp_path: Path) -> None:
    """With the status of a refusal; of a route that asks more than one question, all are there."""

    async def main() -> list[str]:
        lines = []
        unrecorded: set[str] = set()
        async with house(tmp_path) as found:
            for route in found.routes:
                await found.furnish()
                found.rules.denies = True
                status = (await found.ask(route, THERE)).status_code if route not in ASKS_NOTHING else None
                refused = found.rules.questions()
                found.rules.denies = False
                found.rules.asked.clear()
                before = await found.everything()
                found.door.audit.take()
                await found.ask(route, THERE)
                changes = {line["operation"] for line in found.door.audit.take()}
                if not changes and await found.everything() != before:
                    unrecorded.add(route)
                asked = found.rules.questions()
                assert refused[:1] == asked[:1], route
                assert bool(asked) is (route not in ASKS_NOTHING), route
                told = f" > {', '.join(sorted(changes))}" if changes else ""
                lines.append(
                    f"{route}: {', '.join(asked) or 'nothing'}"
                    + (f" ({status})" if status else "")
                    + told
                    + "\n"
                )
        assert unrecorded == UNRECORDED, "what changes the state has a line in the audit log, or stands here"
        return sorted(lines)

    written_rights.check(asyncio.run(main()), GOLDEN)


def test_a_caller_with_some_rights_gets_what_they_are_for(tmp_path: Path) -> None:
    """Listings leave out the rest, and rows of one answer are each another question."""
    other = TopicName.parse("persistent://acme/house/other")
    full = full_name(THERE)

    async def main() -> None:
        async with house(tmp_path) as found:
            broker, http = found.door.broker, found.http
            await broker.pulsar_topics.create(other)
            await broker.pipelines.create("another", "table", {"topic": full}, ANONYMOUS)
            partition = broker.topics.get(TopicName.parse(full)).partition(0)
            await broker.subscription_admin.create(partition, "another", 0)
            await broker.subscription_admin.create(broker.topics.get(other).partition(0), THERE["name"], 0)
            found.rules.denied = {
                topic_resource(other.full),
                subscription_resource(full, "another"),
                pipeline_resource("another"),
                CLUSTER,
            }
            listed = (await http.get("/magnetar/v1/topics")).json()["topics"]
            assert [row["full"] for row in listed] == [full]
            for path in ("persistent/acme/house", "namespaces/acme/house/topics"):
                names = (await http.get(f"/admin/v2/{path}")).json()
                assert any(one.startswith(full) for one in names), path
                assert other.full not in names, path
            pipelines = (await http.get("/magnetar/v1/pipelines")).json()
            assert [row["name"] for row in pipelines["pipelines"]] == [THERE["name"], SOURCE]
            assert pipelines["worker"] is None
            found.rules.denied.add(pipeline_resource(SOURCE))
            for words in ("source", "sources"):
                assert (await http.get(f"/admin/v3/{words}/acme/house")).json() == []
            names = await http.get("/admin/v2/persistent/acme/house/t/subscriptions")
            assert names.json() == [THERE["name"]]
            positions = await http.get("/magnetar/v1/positions", params={"subscription": THERE["name"]})
            assert [row["full"] for row in positions.json()["positions"]] == [full]

            rows = [{"topic": one, "partition": 0} for one in (other.full, full, other.full)]
            for path in ("/magnetar/v1/offsets", "/magnetar/v1/segments"):
                answers = (await http.post(path, json={"partitions": rows})).json()["partitions"]
                assert [row["error"] for row in answers] == [
                    "TOPIC_NOT_AUTHORIZED",
                    None,
                    "TOPIC_NOT_AUTHORIZED",
                ]
                assert answers[1]["high_watermark"] == 3
            wanted = [{**row, "offset": 0} for row in rows]
            held = await http.post(
                "/magnetar/v1/positions", json={"subscription": "new", "positions": wanted}
            )
            assert [row["error"] for row in held.json()["positions"]] == [
                "TOPIC_NOT_AUTHORIZED",
                None,
                "TOPIC_NOT_AUTHORIZED",
            ]
            assert broker.cursors.subscription("new").keys() == {full}
            ranges = [{**row, "from_offset": 0, "to_offset": 3} for row in rows]
            admitted = await http.post(
                "/magnetar/v1/admissions", json={"subscription": "new", "partitions": ranges}
            )
            assert [row.get("to_offset", row["error"]) for row in admitted.json()["partitions"]] == [
                "TOPIC_NOT_AUTHORIZED",
                3,
                "TOPIC_NOT_AUTHORIZED",
            ]

            found.door.clock.advance(60)
            await http.post("/admin/v2/persistent/acme/house/t/all_subscription/expireMessages/30")
            assert broker.subscription_admin.backlog(partition, THERE["name"]) == 0
            assert broker.subscription_admin.backlog(partition, "another") == 3

    asyncio.run(main())


def test_statistics_show_the_subscriptions_that_a_caller_may_describe(tmp_path: Path) -> None:
    """A role that may only produce learned who reads the topic, and from where."""
    kept = "of-others"

    async def main() -> None:
        async with house(tmp_path) as found:
            client = await found.door.connected()
            await found.http.put(
                "/admin/v2/persistent/acme/house/wide/partitions", content="2", headers=_JSON
            )
            for number, topic in enumerate(
                ("persistent://acme/house/t", "persistent://acme/house/wide-partition-1")
            ):
                for name in (THERE["name"], kept):
                    wanted = CommandSubscribe(
                        topic=topic,
                        subscription=name,
                        subType=CommandSubscribe.Shared,
                        consumer_id=2 * number + (name == kept),
                        request_id=1,
                    )
                    await client.ask(wanted, BaseCommand.SUCCESS)
            volatile = CommandSubscribe(
                topic="non-persistent://acme/house/v",
                subscription=kept,
                subType=CommandSubscribe.Shared,
                consumer_id=9,
                request_id=1,
            )
            await client.ask(volatile, BaseCommand.SUCCESS)
            for path in (
                "persistent/acme/house/t/stats",
                "persistent/acme/house/t/internalStats",
                "persistent/acme/house/t/internal-info",
                "persistent/acme/house/wide/partitioned-stats",
                "persistent/acme/house/wide/partitioned-internalStats",
                "persistent/acme/house/wide/internal-info",
                "non-persistent/acme/house/v/stats",
            ):
                found.rules.denied = set()
                everything = await found.http.get(f"/admin/v2/{path}")
                assert (everything.status_code, kept in everything.text) == (200, True), path
                found.rules.denied = {
                    subscription_resource(f"{domain}://acme/house/{topic}", kept)
                    for domain, topic in (
                        ("persistent", "t"),
                        ("persistent", "wide"),
                        ("non-persistent", "v"),
                    )
                }
                shown = await found.http.get(f"/admin/v2/{path}")
                assert (shown.status_code, kept in shown.text) == (200, False), path
                assert (f'"{THERE["name"]}"' in shown.text) is ("/v/" not in path), path

    asyncio.run(main())
