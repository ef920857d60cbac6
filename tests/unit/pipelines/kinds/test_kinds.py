from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.base.table_roots import TableRoots
from magnetar.pipelines.kinds.kind import Context, Spec
from magnetar.pipelines.kinds.query.kind import QueryKind
from magnetar.pipelines.kinds.registry import KINDS, find_kind

CONFIG: dict[str, Any] = {
    "source": {"subscribe": "orders"},
    "sql": "select key, value from source",
    "sink": {"topic": "big"},
}
CONTEXT = Context("http://here:8080", "here:9092", Path("/data/a"))
SPEC = Spec("a", "1", "query", CONFIG, "pipeline-a")


class TestQuery:
    def test_defaults_are_filled_in(self) -> None:
        assert find_kind("query").validate(CONFIG) == {
            **CONFIG,
            "trigger": "1 second",
            "output_mode": "append",
        }

    def test_options_become_the_texts_that_spark_takes(self) -> None:
        source = {"subscribe": "t", "maxOffsetsPerTrigger": 1000, "includeHeaders": True}
        checked = QueryKind().validate({**CONFIG, "source": source})
        assert checked["source"] == {
            "subscribe": "t",
            "maxOffsetsPerTrigger": "1000",
            "includeHeaders": "true",
        }

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"sql": None}, "sql of config must be a text"),
            ({"sql": " "}, "sql of config must be a text"),
            ({"source": "t"}, "source must be an object"),
            ({"source": {"subscribe": ["t"]}}, "option subscribe of source"),
            ({"source": {"checkpointLocation": "/x"}}, "checkpointLocation of source cannot be given"),
            ({"sink": {"predefinedSubscription": "x"}}, "predefinedSubscription of sink cannot be given"),
            ({"source": {"Context": "/x.toml"}}, "option Context of source cannot be given"),
            ({"sink": {"context": "mine"}}, "option context of sink cannot be given"),
            ({"sink": {"transactionalIdPrefix": "x"}}, "transactionalIdPrefix of sink cannot be given"),
            ({"sinks": {}}, "did you mean sink?"),
            ({"zzz": 1}, "there are output_mode, sink"),
            ({"output_mode": "everything"}, "append, update, complete"),
            ({"trigger": "often"}, "'5 minutes'"),
            ({"trigger": "-1 second"}, "'5 minutes'"),
            ({"trigger": "1 fortnight"}, "'5 minutes'"),
        ],
    )
    def test_what_is_wrong_is_named(self, change: dict[str, Any], said: str) -> None:
        with pytest.raises(ConfigError) as caught:
            QueryKind().validate({**CONFIG, **change})
        assert said in str(caught.value)

    @pytest.mark.parametrize("key", CONFIG)
    def test_what_is_needed_is_said(self, key: str) -> None:
        with pytest.raises(ConfigError, match=f"needs the key {key}"):
            QueryKind().validate({name: value for name, value in CONFIG.items() if name != key})


class TestKinds:
    @pytest.mark.parametrize("name", KINDS)
    def test_each_of_ours_is_where_the_table_says(self, name: str) -> None:
        assert find_kind(name).name == name

    @pytest.mark.parametrize(("name", "said"), [("quary", "did you mean query"), ("xyz", "there are query")])
    def test_an_unknown_kind_says_what_there_is(self, name: str, said: str) -> None:
        with pytest.raises(ConfigError, match=said):
            find_kind(name)


class TestContext:
    def test_a_source_is_the_server_itself_from_the_beginning_unless_said_otherwise(self) -> None:
        assert CONTEXT.source_options(SPEC, {"subscribe": "t"}) == {
            "subscribe": "t",
            "admin.url": "http://here:8080",
            "startingOffsets": "earliest",
            "predefinedSubscription": "pipeline-a",
        }
        given = {"subscribe": "t", "Admin.URL": "http://there", "startingTimestamp": "1"}
        assert CONTEXT.source_options(SPEC, given) == {**given, "predefinedSubscription": "pipeline-a"}

    @pytest.mark.parametrize("name", ["Admin.Url", "kafka.bootstrap.servers", "service.url"])
    def test_another_server_does_not_say_which_files_a_worker_opens(self, name: str) -> None:
        worker = replace(CONTEXT, table_roots=TableRoots.of(["/data/tables"]))
        given = {name: "there:1", "READ.MODE": "direct"}
        found = worker.source_options(SPEC, given)
        assert found["read.mode"] == "broker"
        assert "READ.MODE" not in found
        assert "read.mode" not in worker.source_options(SPEC, {"subscribe": "t"})

    def test_a_sink_is_the_server_itself_unless_said_otherwise(self) -> None:
        made = {"topic": "t", "transactionalIdPrefix": "pipeline-a:"}
        assert CONTEXT.sink_options(SPEC, {"topic": "t"}) == {**made, "kafka.bootstrap.servers": "here:9092"}
        given = {"topic": "t", "kafka.bootstrap.servers": "there:9092"}
        assert CONTEXT.sink_options(SPEC, given) == {**made, **given}


class TestServer:
    """How a pipeline reaches its server, and that no other one hears how."""

    SECURED = replace(CONTEXT, server_context="/data/security/worker.toml")

    def test_a_context_takes_the_place_of_the_address(self) -> None:
        source = self.SECURED.source_options(SPEC, {"subscribe": "t"})
        assert source["context"] == "/data/security/worker.toml"
        assert "admin.url" not in source
        assert self.SECURED.sink_options(SPEC, {"topic": "t"}) == {
            "topic": "t",
            "transactionalIdPrefix": "pipeline-a:",
            "kafka.bootstrap.servers": "here:9092",
            "context": "/data/security/worker.toml",
        }
        assert CONTEXT.source_options(SPEC, {})["admin.url"] == "http://here:8080"
        assert "context" not in CONTEXT.sink_options(SPEC, {})

    @pytest.mark.parametrize(
        "elsewhere", ["admin.url", "Admin.URL", "kafka.bootstrap.servers", "service.url"]
    )
    def test_another_server_is_not_shown_it(self, elsewhere: str) -> None:
        assert "context" not in self.SECURED.source_options(SPEC, {elsewhere: "http://there:1"})

    def test_another_cluster_is_not_shown_it(self) -> None:
        assert "context" not in self.SECURED.sink_options(SPEC, {"Kafka.Bootstrap.Servers": "there:9092"})
