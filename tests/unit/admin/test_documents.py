"""The fields of Magnetar's own REST documents, written out: clients read them by these names.

`test_json_fields.py` has those of all routes, as one world shows them; here are those that need more than that.
"""

import json
from pathlib import Path

from magnetar.broker.jobs.worker_lease import WorkerLease
from magnetar.storage.local.store import LocalLedgerStore

from .fields import below, fields
from .world import World, run

V1 = "/magnetar/v1"
ME = {"worker": "w", "host": "here", "pid": 7, "place": "here:/data"}
ENDS = {"topic", "full", "partition", "earliest", "high_watermark", "last_stable", "error"}
ERROR_ROW = {"topic", "partition", "error", "reason"}
SPEC = {"name", "id", "kind", "owner", "config", "desired", "run", "created_ms", "subscription"}
WHOLE = SPEC | {"state", "reason", "status", "reported_ms"}
NUMBERS = {"lag", "lag_s", "rows", "bytes", "rows_per_second", "errors", "restarts"}
ROW = {"name", "kind", "owner", "desired", "state", "reason", "last_error"} | NUMBERS
WORKER = {"host", "pid", "trouble", "about", "reported_ms"}


def test_errors(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        assert fields(await world.ask("GET", f"{V1}/pipelines/no", status=404)) == {"error", "reason"}
        refused = await world.ask("GET", f"{V1}/topics?pattern=(", status=400)
        assert refused["error"] == "INVALID_PATTERN"
        refused = await world.ask("GET", f"{V1}/topics/t/schema", status=404)
        assert refused["error"] == "SCHEMA_NOT_FOUND"
        refused = await world.ask("GET", f"{V1}/positions?subscription=no", status=404)
        assert refused["error"] == "SUBSCRIPTION_NOT_FOUND"

    run(tmp_path, scenario)


def test_topics_and_schemas(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        row = {"topic", "full", "partitions", "partitioned"}
        assert fields(await world.ask("GET", f"{V1}/topics")) == {"topics"} | below("topics[]", row)
        given = {"type": "STRING", "schema": "", "properties": {}}
        await world.http.post("/admin/v2/schemas/public/default/t/schema", json=given)
        schema = await world.ask("GET", f"{V1}/topics/t/schema")
        assert schema == {"version": 0, "type": "STRING", "schema": "", "properties": {}}

        for _ in range(2):
            assert await world.ask("POST", f"{V1}/topics/t/schema", given) == {"version": 0}
        for body, code in (
            ({**given, "type": "INT32"}, "INCOMPATIBLE_SCHEMA"),
            ({**given, "type": "NUMBER"}, "INVALID_SCHEMA"),
            ({**given, "schema": 7}, "INVALID_SCHEMA"),
            ({**given, "properties": {"a": 1}}, "INVALID_SCHEMA"),
            ({**given, "type": "KEY_VALUE"}, "INVALID_SCHEMA"),
            ({**given, "type": "JSON", "schema": "{"}, "INVALID_SCHEMA"),
        ):
            status = 409 if code == "INCOMPATIBLE_SCHEMA" else 422
            refused = await world.ask("POST", f"{V1}/topics/t/schema", body, status)
            assert refused["error"] == code
        missing = await world.ask("POST", f"{V1}/topics/no/schema", given, 404)
        assert missing["error"] == "UNKNOWN_TOPIC"

    run(tmp_path, scenario)


def test_what_readers_of_topics_ask(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.publish(3)
        store = world.broker.store
        assert isinstance(store, LocalLedgerStore)
        await store.checkpoint()
        wanted = {"partitions": [{"topic": "t", "partition": 0}]}
        unknown = {"partitions": [{"topic": "no", "partition": 0}]}
        rows = {"partitions"} | below("partitions[]", ENDS | {"offset_for_timestamp"})
        assert fields(await world.ask("POST", f"{V1}/offsets", wanted)) == rows
        failed = {"partitions"} | below("partitions[]", ERROR_ROW)
        assert fields(await world.ask("POST", f"{V1}/offsets", unknown)) == failed

        located = ENDS | {"from_offset", "to_offset", "tail_from", "segments", "aborted"}
        segment = {
            "ledger",
            "path",
            "state",
            "first_offset",
            "last_offset",
            "max_timestamp_ms",
            "data_bytes",
            "bytes",
            "cuts",
            "end_position",
        }
        found = await world.ask("POST", f"{V1}/segments", {**wanted, "lease_s": 60})
        assert fields(found) == {"lease", "store", "partitions"} | below("partitions[]", located) | below(
            "partitions[].segments[]", segment
        )
        assert found["partitions"][0]["segments"][0]["state"] == "open"
        assert fields(await world.ask("POST", f"{V1}/segments", unknown)) == {"lease", "store"} | failed

        tail = await world.http.get(f"{V1}/entries?topic=t&partition=0&offset=0")
        own = {name for name in tail.headers if name.startswith("x-magnetar-")}
        assert own == {"x-magnetar-earliest", "x-magnetar-high-watermark", "x-magnetar-last-stable"}

    run(tmp_path, scenario)


def test_positions(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        path = f"{V1}/positions"
        row = {"topic": "t", "partition": 0, "offset": 0}
        made = await world.ask("POST", path, {"subscription": "s", "positions": [row]})
        top = {"subscription", "positions"}
        assert fields(made) == top | below("positions[]", {"topic", "partition", "error"})
        failed = await world.ask("POST", path, {"subscription": "s", "positions": [{**row, "topic": "no"}]})
        assert fields(failed) == top | below("positions[]", ERROR_ROW)
        shown = await world.ask("GET", f"{path}?subscription=s")
        assert fields(shown) == top | below(
            "positions[]", {"topic", "full", "partition", "offset", "backlog"}
        )
        asked = {"topic": "t", "partition": 0, "from_offset": 0, "to_offset": 1}
        ahead = await world.ask(
            "POST", f"{V1}/admissions", {"subscription": "s", "partitions": [asked, {**asked, "topic": "no"}]}
        )
        assert fields(ahead) == {"subscription", "partitions"} | below(
            "partitions[]", {"topic", "partition", "to_offset", "error", "reason"}
        )
        dropped = await world.ask("DELETE", f"{path}?subscription=s")
        assert fields(dropped) == {"subscription", "dropped"}

    run(tmp_path, scenario)


def test_pipelines_and_their_worker(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        declared = {"name": "a", "kind": "query", "config": {}}
        assert fields(await world.ask("POST", f"{V1}/pipelines", declared, 201)) == WHOLE
        assert fields(await world.ask("GET", f"{V1}/pipelines/a")) == WHOLE
        lease = await world.ask("POST", f"{V1}/worker/lease", ME)
        assert fields(lease) == {"epoch", "lease_s", "bootstrap", "table_roots"}
        me = {**ME, "epoch": lease["epoch"]}
        orders = await world.ask("POST", f"{V1}/worker/orders", me)
        assert fields(orders) == {"version", "pipelines"} | below("pipelines[]", SPEC)
        tokens = await world.ask("POST", f"{V1}/worker/tokens", {**me, "pipelines": ["a"]})
        assert fields(tokens) == {"tokens", "tokens.a", "life_s"}
        shown = await world.ask("GET", f"{V1}/pipelines")
        assert fields(shown) == {"pipelines", *below("pipelines[]", ROW), *below("worker", WORKER)}
        assert fields(await world.ask("GET", f"{V1}/worker")) == below("worker", WORKER)

    run(tmp_path, scenario)


def test_the_stored_lease_of_the_worker(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        await world.ask("POST", f"{V1}/worker/lease", ME)
        stored = await world.door.metadata.get("/pipelines-worker")
        assert stored is not None
        assert json.loads(stored.value) == {"v": 1, "epoch": 1, **ME}
        again = WorkerLease(world.door.metadata, world.door.clock)
        await again.load()
        assert again.holder == world.broker.pipelines.lease.holder

    run(tmp_path, scenario)


def test_health(tmp_path: Path) -> None:
    async def scenario(world: World) -> None:
        found = await world.ask("GET", "/health")
        assert fields(found) == {"status", "notes", *below("checks", {"tasks", "metadata_write"})}

    run(tmp_path, scenario)
