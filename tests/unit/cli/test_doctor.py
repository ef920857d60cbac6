import asyncio
import json
import tarfile
from pathlib import Path

import pytest

from magnetar.base.lockfile import DirectoryLock
from magnetar.cli.main import run
from magnetar.metadata.sqlite import SqliteMetadataStore
from magnetar.storage.local.disk import RealDisk
from magnetar.storage.local.salvage import examine

FOLDER = Path(__file__).parent.parent / "storage" / "folders" / "version-1.tar.gz"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """What a killed server has left."""
    with tarfile.open(FOLDER) as archive:
        archive.extractall(tmp_path / "data", filter="data")
    asyncio.run(own_ledgers(tmp_path / "data"))
    return tmp_path / "data"


async def own_ledgers(data_dir: Path) -> None:
    """Metadata that names what is in the folder."""
    examined = examine(RealDisk(), data_dir)
    ledgers = [[ledger_id, 0, 0] for ledger_id in sorted(examined.ledgers)]
    examined.close()
    metadata = SqliteMetadataStore(data_dir / "metadata.sqlite")
    await metadata.put("/managed-ledgers/t-partition-0@1f", json.dumps({"ledgers": ledgers}).encode())
    await metadata.close()


def damage(data_dir: Path) -> Path:
    """Flip a bit in the last round but one of the journal; the file."""
    path = max((data_dir / "journal").iterdir(), key=lambda path: path.read_bytes()[8:16])  # by epoch
    data = bytearray(path.read_bytes())
    data[data.rindex(b"MGJR", 0, data.rindex(b"MGJR")) + 30] ^= 1
    path.write_bytes(data)
    return path


def content(data_dir: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data_dir)): path.read_bytes()
        for path in data_dir.rglob("*")
        if path.is_file() and path.name != "lock"
    }


def test_a_healthy_folder_is_told_with_exit_code_0(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(data_dir)
    assert run(["doctor", "--data-dir", str(data_dir)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    assert lines[0] == "ok        catalogue  3 ledgers, checkpoint at round 21"
    assert lines[-1] == "healthy"
    assert content(data_dir) == before


def test_damage_is_told_with_exit_code_1_and_nothing_changes(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = damage(data_dir)
    before = content(data_dir)
    assert run(["doctor", "--data-dir", str(data_dir)]) == 1
    out, _ = capsys.readouterr()
    assert f"damage    journal    {path.name} at byte" in out
    assert out.splitlines()[-1] == (
        f"damaged: magnetar doctor --data-dir {data_dir} --repair goes on with what can be kept"
    )
    assert content(data_dir) == before


def test_a_repair_that_cannot_write_says_so_and_can_be_run_again(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data_dir)
    before = content(data_dir)
    in_the_way = data_dir / "journal" / "0009.new"
    in_the_way.mkdir()
    assert run(["doctor", "--data-dir", str(data_dir), "--repair"]) == 1
    _, err = capsys.readouterr()
    assert err.startswith("magnetar: the repair has stopped: Is a directory. It loses nothing by that")
    assert err.endswith(f"it writes about 1 MiB into {data_dir}\n")
    assert content(data_dir) == before
    assert not list(data_dir.glob("damaged-*"))
    in_the_way.rmdir()
    assert run(["doctor", "--data-dir", str(data_dir), "--repair"]) == 0


def test_a_repair_moves_what_it_replaces_and_leaves_a_healthy_folder(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(data_dir)
    before = content(data_dir)
    assert run(["doctor", "--data-dir", str(data_dir), "--repair", "--output", "json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["healthy"] is True
    assert any(finding["weight"] == "damage" for finding in said["findings"])
    assert [repair["area"] for repair in said["repairs"]] == ["journal"]
    assert not any(finding["weight"] == "damage" for finding in said["after"])
    after = content(data_dir)
    moved = next(path.name for path in data_dir.iterdir() if path.name.startswith("damaged-"))
    for name, data in before.items():
        kept = f"{moved}/{name}" if name.startswith("journal/") else name
        assert after[kept] == data
    assert run(["doctor", "--data-dir", str(data_dir), "--repair"]) == 0
    assert content(data_dir) == after


def test_values_come_as_json(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--data-dir", str(data_dir), "--output", "json", "--deep"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["findings"][0]["details"] == {"bytes": 285, "ledgers": 3, "checkpoint_round": 21}
    assert said.keys() == {"healthy", "findings", "repairs", "after"}
    assert all(found.keys() == {"area", "weight", "text", "details"} for found in said["findings"])
    assert said["repairs"] == said["after"] == []


def test_a_folder_in_use_is_left_alone(data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = DirectoryLock(data_dir / "lock")
    assert run(["doctor", "--data-dir", str(data_dir)]) == 2
    lock.release()
    assert "is in use by pid" in capsys.readouterr().err


def test_a_folder_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--data-dir", str(tmp_path)]) == 2
    assert "is no data dir of a Magnetar server" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
