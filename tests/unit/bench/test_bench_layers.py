"""What is read of py-spy's lines; the looking itself needs a server and a machine with nothing else to do."""

from pathlib import Path

import pytest

import magnetar
from bench.layers import LAYERS, layer_of, shares, table

LOOP = "<module> (magnetar:8);_serve (magnetar/server/standalone.py:120);Runner.run (asyncio/runners.py:118)"


@pytest.mark.parametrize(
    ("frame", "layer"),
    [
        ("Connection.send (magnetar/server/connection.py:139)", "socket"),
        ("Intake.received (/a/venv/lib/magnetar/protocols/intake.py:9)", "framing"),
        ("handle (magnetar/protocols/kafka/handlers/produce.py:143)", "handlers"),
        ("KafkaSession.dispatch (magnetar/protocols/kafka/session.py:244)", "session"),
        ("Partition.publish (magnetar/broker/log/partition.py:1)", "partition"),
        ("Journal._write (magnetar/storage/local/journal.py:405)", "journal"),
        ("Histogram.observe (magnetar/base/metrics.py:46)", "others"),
        ("Runner.run (asyncio/runners.py:118)", None),
        ("main (magnetar:8)", None),
    ],
)
def test_the_innermost_function_says_the_layer(frame: str, layer: str | None) -> None:
    assert layer_of(frame) == layer


def test_shares_are_of_the_loops_thread_alone() -> None:
    lines = [
        f"{LOOP} 6",
        f"{LOOP};Journal._write (magnetar/storage/local/journal.py:405) 3",
        f"{LOOP};handle (magnetar/protocols/kafka/handlers/produce.py:1);Entry (magnetar/ledger/entry.py:5) 1",
        "Thread._bootstrap (threading.py:1002);Worker._run (magnetar/storage/local/worker.py:61) 90",
    ]
    found = shares(lines)
    assert found["journal"] == pytest.approx(0.3)
    assert found["ledger"] == pytest.approx(0.1)
    assert sum(found.values()) == pytest.approx(0.4)
    assert set(shares([]).values()) == {0.0}


def test_every_layer_names_files_that_are_there() -> None:
    root = Path(magnetar.__path__[0])
    for _, beginnings in LAYERS:
        for beginning in beginnings:
            assert (root / beginning).exists(), beginning


def test_the_table_has_a_line_for_each_request_and_its_sum() -> None:
    lines = list(table({"Produce": {"loop": 1e-6, "journal": 2.5e-6}}))
    assert lines == [
        "| one request, us | loop | journal | sum |",
        "|---|---|---|---|",
        "| Produce | 1.0 | 2.5 | 3.5 |",
    ]
