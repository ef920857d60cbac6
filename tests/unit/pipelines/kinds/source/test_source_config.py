"""What a pipeline from files to a topic may be, without Spark."""

from pathlib import Path
from typing import Any

import pytest

from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.kind import NotYet
from magnetar.pipelines.kinds.source.config import FILES, checked
from magnetar.pipelines.kinds.source.kind import SourceKind
from magnetar.pipelines.worker.failures import explain

CONFIG: dict[str, Any] = {"format": "json", "topic": "t", "path": "in"}


def test_defaults_are_filled_in_and_stay() -> None:
    made = checked(CONFIG)
    assert made == {**CONFIG, "schema": None, "options": {}, "trigger": "1 second"}
    assert SourceKind().validate(made) == made


DATABASE: dict[str, Any] = {
    "format": "jdbc",
    "topic": "t",
    "database": "shop",
    "table": "shop.orders",
    "column": "id",
}


def test_a_table_of_a_database_has_keys_of_its_own() -> None:
    made = checked({**DATABASE, "user": "u", "password": "p"})
    assert {name: made[name] for name in DATABASE} == DATABASE
    assert (made["user"], made["password"], made["trigger"]) == ("u", "p", "1 second")
    assert SourceKind().validate(made) == made
    assert checked(DATABASE)["user"] is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"database": None}, "database of config must be a text"),
        ({"table": "(SELECT * FROM secrets) x"}, "table must be a name such as orders or shop.orders"),
        ({"column": "id; DROP TABLE orders"}, "column must be a name"),
        ({"column": None}, "column of config must be a text"),
        ({"password": "p"}, "password needs a user"),
        ({"url": "jdbc:h2:/etc/x"}, "config has no key 'url'"),
        ({"driver": "x.jar"}, "config has no key 'driver'"),
        (
            {"options": {"driver": "org.x.Driver"}},
            "the format jdbc has no option 'driver' here: there are none",
        ),
        ({"options": {"query": "SELECT 1"}}, "the format jdbc has no option 'query'"),
        ({"path": "in"}, "path is for files"),
        ({"format": "json", "path": "in"}, "config has no key 'database'"),
    ],
)
def test_what_is_wrong_of_a_database_is_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked({**DATABASE, **change})
    assert said in str(caught.value)


def test_options_become_the_texts_that_spark_takes() -> None:
    options = {"multiLine": True, "maxFilesPerTrigger": 1, "PATHGLOBFILTER": "*.json"}
    assert checked({**CONFIG, "options": options})["options"] == {
        "multiLine": "true",
        "maxFilesPerTrigger": "1",
        "PATHGLOBFILTER": "*.json",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"format": "xml"}, "format must be one of csv, json, orc, parquet, text, rate, socket, delta"),
        ({"topic": ""}, "topic of config must be a text"),
        ({"path": None}, "config needs the key path"),
        ({"path": "in/*"}, "without any of"),
        ({"path": "{in,../../etc}"}, "without any of"),
        ({"path": "in?"}, "without any of"),
        ({"path": "s3://lake/in"}, "files at s3:// cannot be read"),
        ({"schema": "a INT DEFAULT reflect('java.lang.Runtime', 'x')"}, "names and types"),
        ({"schema": 'a STRING COMMENT "x"'}, "names and types"),
        ({"options": "x"}, "options must be an object"),
        ({"options": {"cleanSource": "delete"}}, "a source leaves files as they are"),
        ({"options": {"sourceArchiveDir": "/x"}}, "no option 'sourceArchiveDir'"),
        ({"options": {"path": "/etc"}}, "name the folder in path"),
        ({"options": {"Paths": '["/etc"]'}}, "name the folder in path"),
        ({"options": {"checkpointLocation": "/x"}}, "the worker keeps the checkpoint"),
        ({"options": {"multiline": True, "multiLin": True}}, "did you mean multiLine?"),
        ({"options": {"compression": "org.x.Codec"}}, "no option 'compression'"),
        ({"options": {"driver": "org.x.Driver"}}, "no option 'driver'"),
        ({"options": {"header": True}}, "the format json has no option 'header'"),
        ({"options": {"mode": ["x"]}}, "the option mode of options must be"),
        ({"format": "rate"}, "path is for files, and the format rate reads none"),
        ({"format": "socket", "path": None, "schema": "a INT"}, "schema is for files"),
        ({"format": "delta", "path": None}, "config needs the key path"),
        ({"format": "iceberg", "path": None}, "config needs the key path"),
        ({"format": "iceberg", "schema": "a INT"}, "schema is for files"),
        ({"format": "delta", "path": "in*"}, "without any of"),
        ({"format": "delta", "schema": "a INT"}, "schema is for files"),
        ({"format": "delta", "options": {"versionAsOf": 1}}, "no option 'versionAsOf' here: there are none"),
        ({"sql": "select 1"}, "config has no key 'sql'"),
    ],
)
def test_what_is_wrong_is_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        checked({**CONFIG, **change})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", FILES)
def test_no_listed_option_moves_files_or_names_a_class(form: str) -> None:
    words = ("clean", "archive", "class", "codec", "driver", "compression", "path")
    allowed = {"pathGlobFilter"}
    assert not [
        one for one in FILES[form] if one not in allowed and any(word in one.lower() for word in words)
    ]


def test_a_folder_that_is_not_there_yet_is_waited_for() -> None:
    assert explain(NotYet(f"there is no folder {Path('in')}: create it")) == (
        "there is no folder in: create it",
        True,
    )
