"""A source of a database's table: which numbers a batch has, and what is said of a database that is away."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from magnetar.pipelines.kinds.source import numbers
from magnetar.pipelines.kinds.source.database import Numbers, Span
from magnetar.pipelines.kinds.source.numbers import NOTHING, WatchedQuery, Watcher
from magnetar.pipelines.targets.errors import TableError


class World:
    """A database whose greatest number is `number`; None for an empty table."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
        self.number: int | None = None
        self.trouble = ""
        self.looked = threading.Semaphore(0)
        self.file = file
        monkeypatch.setattr(numbers, "connected", self._connected)
        monkeypatch.setattr(numbers, "greatest", lambda *_: self.number)
        self.numbers = Numbers(str(file))

    @contextmanager
    def _connected(self, *_: Any) -> Iterator[None]:
        self.looked.release()
        if self.trouble:
            raise TableError(self.trouble)
        yield

    def watcher(self, every_s: float = 0.001) -> Watcher:
        spark: Any = None
        return Watcher(spark, {}, "orders", '"id"', self.file, every_s)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> World:
    return World(monkeypatch, tmp_path / "numbers.json")


def test_a_batch_has_the_numbers_above_the_last_one_up_to_the_greatest(world: World) -> None:
    assert world.numbers.newest() == NOTHING
    world.watcher().look()
    assert world.numbers.newest() == NOTHING, "the table is empty"
    world.number = 7
    world.watcher().look()
    assert world.numbers.newest() == 7
    assert world.numbers.gained(NOTHING, 7) == [Span(NOTHING, 7)]
    assert world.numbers.gained(7, 7) == []
    schema = pa.schema([("above", pa.int64()), ("up_to", pa.int64())])
    (rows,) = world.numbers.rows(Span(7, 1 << 60), schema)
    assert rows.to_pylist() == [{"above": 7, "up_to": 1 << 60}]


@pytest.mark.parametrize("number", [None, 3])
def test_the_greatest_number_never_falls(world: World, number: int | None) -> None:
    world.number = 7
    world.watcher().look()
    world.number = number
    world.watcher().look()
    assert world.numbers.newest() == 7


def test_a_database_that_is_away_fails_the_query_until_it_is_back(world: World) -> None:
    world.number = 7
    world.watcher().look()
    watcher = world.watcher()
    world.trouble = "the database says: no"
    watcher.start()
    for _ in range(3):  # the first of them is the look above, and with the third the second has ended
        assert world.looked.acquire(timeout=30)
    watcher.end()
    watcher.join(30)
    with pytest.raises(TableError, match="the database says: no"):
        world.numbers.newest()
    world.trouble, world.number = "", 9
    watcher.look()
    assert world.numbers.newest() == 9


def test_the_watcher_ends_with_its_query(world: World) -> None:
    for end in ("stop", "fail"):
        query: Any = SimpleNamespace(isActive=True, exception=lambda: None, stop=lambda: None)
        watcher = world.watcher()
        watched = WatchedQuery(query, watcher)
        watcher.start()
        assert watched.isActive
        if end == "stop":
            watched.stop()
        else:
            query.isActive = False
            assert not watched.isActive
        watcher.join(30)
        assert not watcher.is_alive()
