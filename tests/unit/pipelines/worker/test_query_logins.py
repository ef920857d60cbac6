"""Files that queries log in by: where they are, who can read them, when they are replaced and removed."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from magnetar.base.contexts import Context, Contexts, write_contexts
from magnetar.client.errors import Unreachable
from magnetar.client.login import Server
from magnetar.client.pipelines import Pipeline
from magnetar.pipelines.worker import owners as owners_module
from magnetar.pipelines.worker.owners import Owners

A = Pipeline("a", "id-of-a", "query", {}, "RUNNING", 1, "pipeline-a")
B = Pipeline("b", "id-of-b", "query", {}, "RUNNING", 1, "pipeline-b")


class FakeServer:
    """Gives a new token each time."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_there = True
        self.was_asked = threading.Condition()

    def __call__(self, names: Sequence[str]) -> tuple[Mapping[str, str], float]:
        with self.was_asked:
            self.asked.append(list(names))
            self.was_asked.notify_all()
            if not self.is_there:
                raise Unreachable("it does not answer")
            return {name: f"token-{len(self.asked)}-of-{name}" for name in names}, 0.03

    def until(self, count: int) -> None:
        with self.was_asked:
            assert self.was_asked.wait_for(lambda: len(self.asked) >= count, 30)


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(owners_module, "IN_MEMORY", folder)
    monkeypatch.setattr(owners_module, "_PAUSE_S", 0.01)
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "pipelines"
    made.mkdir()
    return made


@pytest.fixture
def server() -> FakeServer:
    return FakeServer()


@pytest.fixture
def owners(memory: Path, folder: Path, server: FakeServer, tmp_path: Path) -> Iterator[Owners]:
    file = tmp_path / "worker.toml"
    write_contexts(file, Contexts({"w": Context("https://here:8443", "/ca.pem", "/never-read")}, "w"))
    made = Owners(Server("https://here:8443", str(file)), folder, server, is_local=True)
    yield made
    made.close()
    assert list(memory.iterdir()) == []


def files(folder: Path) -> list[Path]:
    """But for those that are being written."""
    return sorted(one for one in folder.rglob("*") if one.is_file() and not one.name.startswith("."))


def test_a_query_logs_in_with_a_token_of_its_owner_and_nothing_of_the_workers(
    owners: Owners, memory: Path, folder: Path
) -> None:
    context = Path(owners.context_of(A))
    server = Server.of(str(context))
    assert server.url == "https://here:8443"
    login = server.login()
    assert login.ca == "/ca.pem"
    assert login.token.endswith("-of-a")
    assert "never-read" not in context.read_text()
    assert login.token not in context.read_text()
    assert memory in context.parents
    assert files(folder) == []
    assert {one.stat().st_mode & 0o077 for one in memory.rglob("*")} == {0}


def test_tokens_are_replaced_before_they_end_also_after_a_server_was_away(
    owners: Owners, server: FakeServer
) -> None:
    login = Server.of(owners.context_of(A)).login()
    first = login.token
    server.until(3)
    server.is_there = False
    server.until(len(server.asked) + 2)
    assert login.has_another_token()
    server.is_there = True
    before = login.token
    server.until(len(server.asked) + 3)
    assert login.has_another_token()
    assert len({first, before, login.token}) == 3


def test_files_are_there_as_long_as_a_query_is(owners: Owners, memory: Path) -> None:
    first = owners.context_of(A)
    assert owners.context_of(A) == first  # it was started again before its end was noticed
    other = owners.context_of(B)
    owners.let_go(A.id)
    assert Path(first).exists()
    owners.let_go(A.id)
    assert not Path(first).exists()
    assert {one.stem for one in files(memory)} == {Path(other).stem}


def test_what_a_kind_leaves_beside_the_token_is_deleted_with_it(owners: Owners, memory: Path) -> None:
    private = owners.private_file(A)
    owners.context_of(A)
    private.write_text("secret")
    assert private in files(memory)
    owners.let_go(A.id)
    assert files(memory) == []


def test_one_whose_token_is_not_given_is_not_started(
    owners: Owners, server: FakeServer, memory: Path
) -> None:
    server.is_there = False
    with pytest.raises(Unreachable):
        owners.context_of(A)
    assert files(memory) == []


def test_a_cluster_has_them_in_the_folder_that_it_shares(
    memory: Path, folder: Path, server: FakeServer
) -> None:
    made = Owners(Server("http://here:8080"), folder, server, is_local=False)
    assert folder in Path(made.context_of(A)).parents
    assert {one.stat().st_mode & 0o077 for one in (folder / ".owners", *files(folder))} == {0}
    assert list(memory.iterdir()) == []
    made.close()
    assert list(folder.iterdir()) == []


def test_what_a_killed_worker_left_is_removed_and_what_others_have_is_not(
    memory: Path, folder: Path, server: FakeServer, tmp_path: Path
) -> None:
    other_folder = tmp_path / "others"
    other_folder.mkdir()
    other = Owners(Server("http://here"), other_folder, server, is_local=True)
    kept = Path(other.context_of(B))
    killed = Owners(Server("http://here"), folder, server, is_local=True)
    left = Path(killed.context_of(A))
    killed._stop.set()
    killed._thread.join()
    made = Owners(Server("http://here"), folder, server, is_local=True)
    assert not left.exists()
    assert kept.exists()
    for one in (made, other):
        one.close()
    assert list(memory.iterdir()) == []
