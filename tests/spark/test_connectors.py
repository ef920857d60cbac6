"""Sinks and sources that the real `pulsar-admin` declares: files into a topic, and topics into files."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulsar
import pyarrow as pa
import pyarrow.dataset
import pytest
from pulsar.schema import AvroSchema, Integer, Record, String

from magnetar.testing.server import MagnetarProcess
from tests.integration.java_tools import needs_java, run_pulsar_shell
from tests.spark.pipelines import World, settings

pytestmark = [*needs_java, pytest.mark.spark, pytest.mark.xdist_group("spark")]
WHERE = "--tenant public --namespace default --name"


class Point(Record):  # type: ignore[misc]  # pulsar-client has no types
    x = Integer()
    name = String()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with MagnetarProcess(settings=settings()) as server:
        made = World(server)
        yield made
        made.close()


def status(world: World, role: str, name: str) -> dict[str, Any]:
    url = f"{world.server.http_url}/admin/v3/{role}/public/default/{name}/0/status"
    with urllib.request.urlopen(url, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
    return found


def put(folder: Path, name: str, begin: int, end: int) -> None:
    """A file of JSON that is there as a whole at once."""
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{name}"
    hidden.write_text("".join(f'{{"id": {n}, "name": "x{n}"}}\n' for n in range(begin, end)))
    hidden.replace(folder / name)


def ids(folder: Path) -> list[int]:
    """Of all rows in a folder of Parquet files."""
    files = [str(one) for one in folder.rglob("*.parquet")]
    tables = [pyarrow.dataset.dataset(one).to_table(columns=["id"]) for one in files]
    return sorted(pa.concat_tables(tables).column("id").to_pylist()) if tables else []


def test_files_become_a_topic_and_the_topic_files_whatever_is_stopped_and_killed(world: World) -> None:
    server = world.server
    tables = server.data_dir / "tables"
    put(tables / "in", "a.json", 0, 100)
    sources, sinks, *made, got, listed = run_pulsar_shell(
        server,
        [
            "admin sources available-sources",
            "admin sinks available-sinks",
            f"admin sources create {WHERE} files --source-type json --destination-topic-name orders"
            ' --source-config \'{"path":"in","maxFilesPerTrigger":1}\'',
            f"admin sinks create {WHERE} lake --sink-type parquet --inputs orders --subs-position Earliest"
            ' --sink-config \'{"path":"out","partition_by":"none","trigger":"1 second"}\'',
            f"admin sinks get {WHERE} lake",
            "admin sinks list --tenant public --namespace default",
        ],
    )
    assert "parquet" in sinks
    assert "rate" in sources
    assert all("Created successfully" in one for one in made)
    assert json.loads(got[got.index("{") :])["configs"]["path"] == "out"
    assert "lake" in json.loads(listed[listed.index("[") :])
    world.until(lambda: ids(tables / "out") == list(range(100)))

    said = run_pulsar_shell(server, [f"admin sinks stop {WHERE} lake", f"admin sinks status {WHERE} lake"])
    assert "Stopped successfully" in said[0]
    world.until(lambda: not status(world, "sink", "lake")["running"])
    put(tables / "in", "b.json", 100, 150)
    world.until(lambda: status(world, "source", "files")["numWritten"] == 150)
    assert ids(tables / "out") == list(range(100))
    put(tables / "in", "c.json", 150, 200)
    server.kill()
    server.restart()
    run_pulsar_shell(server, [f"admin sinks start {WHERE} lake"])
    world.until(lambda: len(ids(tables / "out")) >= 200)
    put(tables / "in", "d.json", 200, 210)
    run_pulsar_shell(server, [f"admin sources restart {WHERE} files", f"admin sinks restart {WHERE} lake"])
    world.until(lambda: len(ids(tables / "out")) >= 210)
    assert ids(tables / "out") == list(range(210))

    _, again, *_ = run_pulsar_shell(
        server,
        [
            f"admin sinks update {WHERE} lake --sink-config"
            ' \'{"path":"out","partition_by":"none","trigger":"2 seconds"}\'',
            f"admin sinks get {WHERE} lake",
            f"admin sources delete {WHERE} files",
            f"admin sinks delete {WHERE} lake",
        ],
    )
    assert json.loads(again[again.index("{") :])["configs"]["trigger"] == "2 seconds"
    names = {one.name for one in world.client.all()}
    assert not names & {"sink.public.default.lake", "source.public.default.files"}
    assert ids(tables / "out") == list(range(210))


def test_a_topic_of_avro_becomes_lines_of_json_once_its_folder_can_be_written(world: World) -> None:
    tables = world.server.data_dir / "tables"
    tables.mkdir(exist_ok=True)
    (tables / "blocked").write_text("no folder")
    client = pulsar.Client(world.server.pulsar_url)
    producer = client.create_producer("points", schema=AvroSchema(Point))
    for number in range(10):
        producer.send(Point(x=number, name="p"))
    client.close()
    run_pulsar_shell(
        world.server,
        [
            f"admin sinks create {WHERE} lines --archive builtin://json --inputs points --subs-position Earliest"
            ' --sink-config \'{"path":"blocked/points","metadata_columns":["offset"],"trigger":"1 second"}\'',
        ],
    )
    world.until(lambda: "blocked" in status(world, "sink", "lines")["error"])
    failed = status(world, "sink", "lines")
    assert failed["numSystemExceptions"] >= 1
    assert "Traceback" not in failed["error"]
    (tables / "blocked").unlink()

    def rows() -> list[dict[str, Any]]:
        files = (tables / "blocked").rglob("*.json")
        lines = [one.read_text() for one in files if "_magnetar" not in one.parts]
        return [json.loads(line) for text in lines for line in text.splitlines()]

    world.until(lambda: len(rows()) >= 10)
    expected = [{"__offset": n, "x": n, "name": "p"} for n in range(10)]
    assert sorted(rows(), key=lambda one: one["__offset"]) == expected


def test_a_rate_goes_into_a_topic_and_an_option_that_names_a_class_does_not(world: World) -> None:
    run_pulsar_shell(
        world.server,
        [
            f"admin sources create {WHERE} ticks --source-type rate --destination-topic-name ticks"
            " --source-config '{\"rowsPerSecond\":5}'",
            f"admin sources create {WHERE} evil --source-type socket --destination-topic-name evil"
            ' --source-config \'{"host":"127.0.0.1","port":1,"driver":"org.x.Y"}\'',
        ],
    )
    world.until(lambda: status(world, "source", "ticks")["numWritten"] >= 10)
    world.until(
        lambda: "the format socket has no option 'driver'" in status(world, "source", "evil")["error"]
    )
