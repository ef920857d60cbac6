"""Sinks and sources as Pulsar's tools declare them, and the pipelines that they are."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from magnetar.admin.connectors import (
    SINK,
    SOURCE,
    UNSERVED,
    Place,
    Role,
    changed,
    declared,
    shown,
    status_of,
)
from magnetar.admin.routes.connectors import _STOP_S
from magnetar.base.masking import HIDDEN
from magnetar.base.table_roots import TableRoots
from magnetar.broker.jobs.errors import InvalidPipeline
from magnetar.broker.jobs.model import Desired, Pipeline, State
from magnetar.broker.security.model import Caller, Principal
from magnetar.broker.usecases.pipelines import PipelineView

from .world import World, run

ORDERS = "persistent://public/default/orders"
SINK_WORDS: Mapping[str, Any] = {
    "archive": "builtin://parquet",
    "inputs": ["orders"],
    "configs": {"path": "orders"},
}
SOURCE_WORDS: Mapping[str, Any] = {
    "archive": "builtin://json",
    "topicName": "orders",
    "configs": {"path": "in", "multiLine": True},
}
WORDS = {"sink": SINK_WORDS, "source": SOURCE_WORDS}
OF_SINK = Place(SINK, "public", "default", "s")
OF_SOURCE = Place(SOURCE, "public", "default", "s")
W = "/magnetar/v1/worker"
ME = {"worker": "w", "host": "here", "pid": 7, "place": "here:/data"}


def refused(place: Place, **words: Any) -> str:
    with pytest.raises(InvalidPipeline) as caught:
        declared(place, {**WORDS[place.role.noun], **words})
    return str(caught.value)


class TestTranslation:
    def test_a_sink_is_a_table_of_its_inputs(self) -> None:
        more = {
            "inputs": ["orders", "acme/app/more", ORDERS],
            "sourceSubscriptionPosition": "Earliest",
            "deadLetterTopic": "bad",
            "configs": {"path": "orders", "partition_by": "hour"},
        }
        assert declared(OF_SINK, {**SINK_WORDS, **more}) == {
            "format": "parquet",
            "topics": [ORDERS, "persistent://acme/app/more"],
            "starting": "earliest",
            "dead_letter": "persistent://public/default/bad",
            "path": "orders",
            "partition_by": "hour",
        }

    def test_a_sink_begins_where_pulsars_do_unless_it_is_told(self) -> None:
        assert declared(OF_SINK, SINK_WORDS)["starting"] == "latest"

    def test_a_sinks_topics_may_be_keys_of_specs(self) -> None:
        words = {**SINK_WORDS, "inputs": None, "inputSpecs": {"orders": {"isRegexPattern": False}}}
        assert declared(OF_SINK, words)["topics"] == [ORDERS]

    def test_a_source_has_what_spark_gets_apart(self) -> None:
        configs = {"path": "in", "multiLine": True, "schema": "a INT", "trigger": "1 s", "column": "id"}
        assert declared(OF_SOURCE, {**SOURCE_WORDS, "configs": configs}) == {
            "format": "json",
            "topic": ORDERS,
            "path": "in",
            "schema": "a INT",
            "trigger": "1 s",
            "column": "id",
            "options": {"multiLine": True},
        }

    @pytest.mark.parametrize("role", [SINK, SOURCE], ids=lambda role: role.noun)
    def test_a_type_is_as_good_as_an_archive(self, role: Role) -> None:
        place, words = Place(role, "public", "default", "s"), dict(WORDS[role.noun])
        name = words.pop("archive").removeprefix("builtin://")
        assert declared(place, {**words, f"{role.noun}Type": name}) == declared(place, WORDS[role.noun])

    @pytest.mark.parametrize("place", [OF_SINK, OF_SOURCE], ids=lambda place: place.role.noun)
    def test_what_holds_anyway_is_taken(self, place: Place) -> None:
        words = {
            "tenant": "public",
            "namespace": "default",
            "name": "s",
            "parallelism": 1,
            "autoAck": True,
            "cleanupSubscription": True,
            "retainOrdering": False,
            "retainKeyOrdering": True,
            "processingGuarantees": "ATLEAST_ONCE",
            "className": "",
            "resources": None,
            "secrets": {},
        }
        plain = WORDS[place.role.noun]
        assert declared(place, {**plain, **words}) == declared(place, plain)

    @pytest.mark.parametrize("word", UNSERVED)
    @pytest.mark.parametrize("place", [OF_SINK, OF_SOURCE], ids=lambda place: place.role.noun)
    def test_what_is_not_served_is_refused_by_name(self, place: Place, word: str) -> None:
        assert refused(place, **{word: "x"}) == f"{UNSERVED[word]}: not supported by Magnetar."

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"tenant": "acme"}, "the sink's tenant is public"),
            ({"name": "other"}, "the sink's name is s"),
            ({"nonsense": 1}, "no word 'nonsense' of a sink's"),
            ({"topicName": "t"}, "no word 'topicName' of a sink's"),
            ({"parallelism": 2}, "parallelism of a sink is 1 here"),
            ({"autoAck": False}, "autoAck of a sink is true here"),
            ({"cleanupSubscription": False}, "cleanupSubscription of a sink is true here"),
            ({"retainOrdering": "yes"}, "retainOrdering of a sink must be true or false"),
            ({"processingGuarantees": "ATMOST_ONCE"}, "ATLEAST_ONCE, EFFECTIVELY_ONCE"),
            ({"archive": None}, "Sink archive not specified: give builtin://NAME, there are csv, delta"),
            ({"archive": "pulsar-io-jdbc.nar"}, "Archives of connectors: not supported"),
            ({"archive": "https://there/x.nar"}, "Archives of connectors: not supported"),
            ({"archive": 7}, "Archives of connectors: not supported"),
            ({"archive": "builtin://parket"}, "did you mean parquet?"),
            ({"archive": "builtin://rate"}, "there is no built-in sink 'rate'"),
            ({"archive": None, "sinkType": ["csv"]}, "there is no built-in sink"),
            ({"sinkType": "csv"}, "Cannot specify both"),
            ({"configs": "path=x"}, "configs of a sink must be an object"),
            ({"configs": {"path": "x", "topics": ["t"]}}, "may not have topics: inputs says it"),
            ({"configs": {"path": "x", "format": "csv"}}, "may not have format: archive says it"),
            ({"configs": {"starting": "latest"}}, "may not have starting"),
            ({"configs": {"dead_letter": "fail"}, "deadLetterTopic": "t"}, "say the same"),
            ({"inputs": []}, "No input topic(s) specified"),
            ({"inputs": {"orders": 1}}, "inputs of a sink must be a list"),
            ({"inputs": [7]}, "a topic's name must be a text"),
            ({"inputs": ["a/b"]}, "topic"),
            ({"inputs": ["non-persistent://public/default/t"]}, "stores nothing"),
            ({"inputSpecs": {"t": {"serdeClassName": "x.Y"}}}, "inputSpecs of a sink: not supported"),
            ({"inputSpecs": {"t.*": {"isRegexPattern": True}}}, "inputSpecs of a sink: not supported"),
            ({"inputSpecs": ["t"]}, "inputSpecs of a sink: not supported"),
            ({"sourceSubscriptionPosition": "Middle"}, "Latest, Earliest"),
            ({"sourceSubscriptionPosition": ["Latest"]}, "Latest, Earliest"),
        ],
    )
    def test_what_is_wrong_of_a_sink_is_named(self, words: dict[str, Any], said: str) -> None:
        assert said in refused(OF_SINK, **words)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"inputs": ["t"]}, "no word 'inputs' of a source's"),
            ({"topicName": ""}, "Topic name cannot be null"),
            ({"topicName": "non-persistent://public/default/t"}, "stores nothing"),
            ({"schemaType": "avro"}, "the schema avro of a source: its values are JSON"),
            ({"archive": "builtin://hudi"}, "there is no built-in source 'hudi'"),
            ({"archive": None}, "Source archive not specified"),
            ({"configs": {"options": {"x": 1}}}, "may not have options"),
            ({"configs": {"topic": "t"}}, "may not have topic: topicName says it"),
        ],
    )
    def test_what_is_wrong_of_a_source_is_named(self, words: dict[str, Any], said: str) -> None:
        assert said in refused(OF_SOURCE, **words)

    @pytest.mark.parametrize("part", ["a.b", "", "a/b", "a b", "\u00e4"])
    def test_two_connectors_cannot_be_one_pipeline(self, part: str) -> None:
        with pytest.raises(InvalidPipeline, match="ASCII letters"):
            Place(SINK, "public", "default", part).pipeline()

    @pytest.mark.parametrize("place", [OF_SINK, OF_SOURCE], ids=lambda place: place.role.noun)
    def test_what_is_shown_declares_the_same(self, place: Place) -> None:
        config = declared(place, WORDS[place.role.noun])
        assert declared(place, shown(place, config)) == config

    @pytest.mark.parametrize(
        "config", [{}, {"topics": 7, "format": 1}, {"options": 1, "topic": [], "dead_letter": {}}]
    )
    @pytest.mark.parametrize("place", [OF_SINK, OF_SOURCE], ids=lambda place: place.role.noun)
    def test_a_pipeline_of_that_name_with_any_configuration_is_shown(
        self, place: Place, config: dict[str, Any]
    ) -> None:
        assert shown(place, config)["name"] == "s"


class TestUpdate:
    BEFORE = declared(OF_SINK, {**SINK_WORDS, "sourceSubscriptionPosition": "Earliest"})

    def test_configs_are_replaced_and_all_else_stays(self) -> None:
        said = {"configs": {"path": "orders", "trigger": "1 minute"}, "sourceSubscriptionPosition": "Latest"}
        after = changed(OF_SINK, said)("table", self.BEFORE)
        assert after == {**self.BEFORE, "trigger": "1 minute"}

    @pytest.mark.parametrize(
        ("said", "reason"),
        [
            ({"inputs": ["other"]}, "Input Topics cannot be altered"),
            ({"inputSpecs": {"other": {}}}, "Input Topics cannot be altered"),
            ({"archive": "builtin://csv"}, "the connector of a sink cannot be altered"),
            ({"sourceSubscriptionPosition": "Latest"}, "Update contains no change"),
            ({"parallelism": 2}, "parallelism of a sink is 1 here"),
            ({"className": "x.Y"}, "A class of a connector"),
        ],
    )
    def test_what_cannot_change_is_refused(self, said: dict[str, Any], reason: str) -> None:
        with pytest.raises(InvalidPipeline) as caught:
            changed(OF_SINK, said)("table", self.BEFORE)
        assert reason in str(caught.value)

    def test_a_source_keeps_its_topic(self) -> None:
        before = declared(OF_SOURCE, SOURCE_WORDS)
        with pytest.raises(InvalidPipeline, match="Destination topics differ"):
            changed(OF_SOURCE, {"topicName": "other"})("source", before)
        assert changed(OF_SOURCE, {"configs": {"path": "out"}})("source", before)["path"] == "out"

    def test_a_pipeline_of_another_kind_is_no_sink(self) -> None:
        with pytest.raises(InvalidPipeline, match="Sink s doesn't exist"):
            changed(OF_SINK, {"configs": {"path": "x"}})("query", {"sql": "select 1"})

    def test_who_changes_a_connector_is_whom_it_acts_for(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            await send(world, "POST", path_of("sink"), SINK_WORDS)
            name, bob = OF_SINK.pipeline(), Principal("User", "bob")
            change = changed(OF_SINK, {"configs": {"path": "moved"}})
            await world.broker.cases.pipelines.update(Caller(bob, "there"), name, change)
            assert world.broker.pipelines.get(name).owner == bob
            with pytest.raises(InvalidPipeline, match="its namespace has its configuration"):
                await world.broker.cases.pipelines.update(
                    Caller(bob, "there"), "replicator.Kafka.us.t-0", lambda _, config: config
                )

        in_world(tmp_path, scenario)


class TestStatus:
    @pytest.mark.parametrize(
        ("numbers", "received"),
        [
            ({}, 0),
            ({"last_batch": {"rows": 0, "at": "2026-11-27T04:00:00.000Z"}}, 0),
            ({"last_batch": {"rows": 3, "at": "2026-11-27T04:00:00.000Z"}}, 1795752000000),
            ({"last_batch": {"rows": 3, "at": "soon"}, "rows": "many"}, 0),
            ({"last_batch": 7}, 0),
        ],
    )
    def test_what_a_worker_reports_becomes_pulsars_words(
        self, numbers: dict[str, Any], received: int
    ) -> None:
        pipeline = Pipeline("sink.public.default.s", "1", "table", {}, Desired.RUNNING, 1, 0)
        view = PipelineView(pipeline, State.RUNNING, "", numbers, 5)
        status = status_of(SINK, view)
        assert (status["running"], status["lastReceivedTime"]) == (True, received)
        assert status["numWrittenToSink"] == 0


def path_of(connector: str, name: str = "s", more: str = "") -> str:
    return f"/admin/v3/{connector}/public/default/{name}{more}"


async def send(
    world: World, method: str, path: str, words: Mapping[str, Any], status: int = 204, role: str = "sink"
) -> str:
    files = {f"{role}Config": (None, json.dumps(words), "application/json")}
    answer = await world.http.request(method, path, files=files)
    assert answer.status_code == status, answer.text
    return "" if status == 204 else str(answer.json()["reason"])


def in_world(tmp_path: Path, scenario: Any) -> None:
    run(tmp_path, scenario, table_roots=TableRoots.of([str(tmp_path / "tables")]))


class TestRoutes:
    @pytest.mark.parametrize("connector", ["sink", "sinks"])
    def test_a_sink_from_its_declaration_to_its_end(self, tmp_path: Path, connector: str) -> None:
        async def scenario(world: World) -> None:
            path = path_of(connector)
            configs = {"path": "orders", "storage_options": {"AWS_SECRET_ACCESS_KEY": "hush"}}
            await send(world, "POST", path, {**SINK_WORDS, "configs": configs})
            assert await send(world, "POST", path, SINK_WORDS, 400) == "Sink s already exists"
            assert await world.ask("GET", f"/admin/v3/{connector}/public/default") == ["s"]
            assert await world.ask("GET", f"/admin/v3/{connector}/public/other") == []
            assert await world.ask("GET", path) == {
                "tenant": "public",
                "namespace": "default",
                "name": "s",
                "archive": "builtin://parquet",
                "inputs": [ORDERS],
                "sourceSubscriptionPosition": "Latest",
                "processingGuarantees": "EFFECTIVELY_ONCE",
                "retainOrdering": True,
                "autoAck": True,
                "cleanupSubscription": True,
                "parallelism": 1,
                "configs": {"path": "orders", "storage_options": {"AWS_SECRET_ACCESS_KEY": HIDDEN}},
            }
            (row,) = (await world.ask("GET", "/magnetar/v1/pipelines"))["pipelines"]
            assert (row["name"], row["kind"]) == ("sink.public.default.s", "table")

            lease = await world.ask("POST", f"{W}/lease", ME)
            me = {**ME, "epoch": lease["epoch"]}
            (spec,) = (await world.ask("POST", f"{W}/orders", me))["pipelines"]
            numbers = {"rows": 9, "failures": 2, "last_error": "no room"}
            report = {"id": spec["id"], "run": 1, "state": "RUNNING", "status": numbers}
            await world.ask("POST", f"{W}/report", {**me, "pipelines": {spec["name"]: report}}, 204)
            one = await world.ask("GET", f"{path}/0/status")
            at = one["latestSystemExceptions"][0]["timestampMs"]
            assert one == {
                "running": True,
                "error": "",
                "numRestarts": 2,
                "numReadFromPulsar": 9,
                "numSystemExceptions": 2,
                "latestSystemExceptions": [{"exceptionString": "no room", "timestampMs": at}],
                "numSinkExceptions": 0,
                "latestSinkExceptions": [],
                "numWrittenToSink": 9,
                "lastReceivedTime": 0,
                "workerId": "magnetar",
            }
            whole = await world.ask("GET", f"{path}/status")
            assert whole == {
                "numInstances": 1,
                "numRunning": 1,
                "instances": [{"instanceId": 0, "status": one}],
            }

            for verb, desired in (("stop", "STOPPED"), ("start", "RUNNING"), ("restart", "RUNNING")):
                for instance in ("", "/0"):
                    await world.ask("POST", f"{path}{instance}/{verb}", status=204)
                (spec,) = (await world.ask("POST", f"{W}/orders", me))["pipelines"]
                assert spec["desired"] == desired
            await send(world, "PUT", path, {"configs": {"path": "orders", "trigger": "1 minute"}})
            orders = await world.ask("POST", f"{W}/orders", me)
            (after,) = orders["pipelines"]
            assert (after["id"], after["run"]) == (spec["id"], spec["run"] + 1)
            assert after["config"] == {
                "format": "parquet",
                "topics": [ORDERS],
                "starting": "latest",
                "path": "orders",
                "trigger": "1 minute",
            }

            deleting = asyncio.create_task(world.ask("DELETE", path, status=204))
            at_a_change = {**me, "version": orders["version"], "wait_ms": 10_000}
            (spec,) = (await world.ask("POST", f"{W}/orders", at_a_change))["pipelines"]
            assert spec["desired"] == "DELETED"
            assert await world.ask("GET", f"/admin/v3/{connector}/public/default") == []
            await world.ask("GET", path, status=404)
            stopped = {**report, "run": after["run"], "state": "STOPPED"}
            assert not deleting.done()
            await world.ask("POST", f"{W}/report", {**me, "pipelines": {spec["name"]: stopped}}, 204)
            await deleting
            await send(world, "POST", path, SINK_WORDS)

        in_world(tmp_path, scenario)

    def test_a_deletion_is_answered_in_time_whatever_other_pipelines_do(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            path, other = path_of("sink"), path_of("source")
            await send(world, "POST", path, SINK_WORDS)
            await send(world, "POST", other, SOURCE_WORDS, role="source")
            lease = await world.ask("POST", f"{W}/lease", ME)
            await world.ask("POST", f"{W}/orders", {**ME, "epoch": lease["epoch"]})
            deleting = asyncio.create_task(world.ask("DELETE", path, status=204))
            done = []
            for waited_s in (0, 0.4 * _STOP_S, 0.4 * _STOP_S, 0.4 * _STOP_S):
                world.door.clock.advance(waited_s)
                await world.ask("POST", f"{other}/restart", status=204)
                for _ in range(50):
                    await asyncio.sleep(0)
                done.append(deleting.done())
            deleting.cancel()
            assert done == [False, False, False, True]

        in_world(tmp_path, scenario)

    def test_a_source_is_a_pipeline_of_its_kind(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            path = path_of("source")
            await send(world, "POST", path, SOURCE_WORDS, role="source")
            assert await world.ask("GET", path) == {
                "tenant": "public",
                "namespace": "default",
                "name": "s",
                "archive": "builtin://json",
                "topicName": ORDERS,
                "processingGuarantees": "EFFECTIVELY_ONCE",
                "parallelism": 1,
                "configs": {"path": "in", "multiLine": True},
            }
            one = await world.ask("GET", f"{path}/0/status")
            assert one["running"] is False
            assert one["error"] == "no worker runs: `magnetar worker` starts one"
            assert (one["numReceivedFromSource"], one["numWritten"]) == (0, 0)
            assert await world.ask("GET", "/admin/v3/sink/public/default") == []
            await world.ask("DELETE", path, status=204)
            await world.ask("GET", f"{path}/status", status=404)

        in_world(tmp_path, scenario)

    def test_what_there_is_has_a_class_or_pulsars_tools_would_not_show_it(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            for noun in ("sink", "source"):
                for spelt in (noun, f"{noun}s"):
                    found = await world.ask("GET", f"/admin/v3/{spelt}/builtin{noun}s")
                    assert all(one["description"] and one[f"{noun}Class"] for one in found)
                    assert {"csv", "json", "parquet"} <= {one["name"] for one in found}

        in_world(tmp_path, scenario)

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            ({"configs": {"path": "/etc/cron.d"}}, "path: a table must be"),
            ({"configs": {"path": "../x"}}, "path: a table must be"),
            ({"configs": {"path": "s3://theirs/x"}}, "no table may be at s3://theirs/x"),
            ({"configs": {"path": "x", "storage_options": {"KEY": HIDDEN}}}, "in place of a secret"),
            ({"configs": {"path": "x", "note": "x" * 70_000}}, "is too large"),
        ],
    )
    @pytest.mark.parametrize("role", ["sink", "source"])
    def test_a_path_outside_of_the_roots_is_refused_also_by_an_update(
        self, tmp_path: Path, role: str, words: dict[str, Any], said: str
    ) -> None:
        async def scenario(world: World) -> None:
            path = path_of(role)
            assert said in await send(world, "POST", path, {**WORDS[role], **words}, 400, role)
            await send(world, "POST", path, WORDS[role], role=role)
            assert said in await send(world, "PUT", path, words, 400, role)
            assert (await world.ask("GET", path))["configs"] == WORDS[role]["configs"]

        in_world(tmp_path, scenario)

    def test_what_is_not_there_is_said_as_pulsar_says_it(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            missing = path_of("sink", "no")
            for method, more, status in (
                ("GET", "", 404),
                ("GET", "/status", 404),
                ("GET", "/0/status", 404),
                ("POST", "/start", 404),
                ("POST", "/stop", 404),
                ("POST", "/0/restart", 404),
                ("DELETE", "", 404),
            ):
                answer = await world.ask(method, missing + more, status=status)
                assert answer["reason"] == "Sink no doesn't exist"
            assert (
                await send(world, "PUT", missing, {"configs": {"path": "x"}}, 400) == "Sink no doesn't exist"
            )
            nowhere = "/admin/v3/sink/public/nowhere/s"
            assert await send(world, "POST", nowhere, SINK_WORDS, 400) == "Namespace does not exist"
            await send(world, "POST", path_of("sink"), SINK_WORDS)
            answer = await world.ask("POST", path_of("sink", more="/1/stop"), status=400)
            assert answer["reason"] == "Sink s doesn't have instance with id 1"
            answer = await world.ask("POST", "/admin/v3/sink/reloadBuiltInSinks", status=501)
            assert "not supported by Magnetar" in answer["reason"]

        in_world(tmp_path, scenario)

    @pytest.mark.parametrize(
        "content", ["", "{", "[]", "1e999", '{"inputs": NaN}', '"\\ud800"', "[" * 10_000]
    )
    def test_what_is_no_object_is_refused(self, tmp_path: Path, content: str) -> None:
        async def scenario(world: World) -> None:
            files = {"sinkConfig": (None, content, "application/json")}
            answer = await world.http.post(path_of("sink"), files=files)
            assert answer.status_code == 400, answer.text
            other = await world.http.post(path_of("sink"), files={"sourceConfig": (None, "{}")})
            assert other.json()["reason"] == "the form has no sinkConfig"

        in_world(tmp_path, scenario)

    def test_an_archive_is_not_taken_whatever_its_size(self, tmp_path: Path) -> None:
        async def scenario(world: World) -> None:
            config = json.dumps({**SINK_WORDS, "archive": "x.nar"})
            for size, status in ((10, 400), (2 << 20, 413)):
                files: dict[str, tuple[str | None, str | bytes]] = {
                    "sinkConfig": (None, config),
                    "data": ("x.nar", b"x" * size),
                }
                answer = await world.http.post(path_of("sink"), files=files)
                assert answer.status_code == status
                assert "Archives of connectors: not supported by Magnetar." in answer.json()["reason"]

        in_world(tmp_path, scenario)
