"""What `magnetar sql` says before it starts anything."""

from pathlib import Path

import pytest

from magnetar.cli.main import run
from magnetar.testing.server import free_ports


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--output", "xml", "select 1"], "table, json, csv, parquet"),
        (["--output-file", "rows.csv", "select 1; select 2"], "one statement"),
        (["--output-file", "no/such/dir/rows.csv", "select 1"], "no directory no/such/dir"),
        ([" ; -- nothing"], "there is no statement"),
        (["--rows", "0", "select 1"], "--rows"),
        (["--url", "nonsense", "select 1"], "nonsense"),
    ],
)
def test_bad_arguments_are_one_sentence(
    arguments: list[str],
    says: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["sql", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err
    assert len(err.splitlines()) == 1


def test_no_server_is_told_with_the_next_step(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("magnetar.pipelines.sql.server_topics._PATIENCE_S", 0.0)
    (port,) = free_ports(1)
    assert run(["sql", "--url", f"http://127.0.0.1:{port}", "select 1"]) == 2
    err = capsys.readouterr().err
    assert f"no server answers at http://127.0.0.1:{port}" in err
    assert "magnetar standalone" in err
