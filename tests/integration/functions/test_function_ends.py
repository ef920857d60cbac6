"""What is left of a function that is deleted: its subscription or not, and its namespace."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import CODE, SETTINGS, Worker, client_of, texts
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with MagnetarProcess(settings=SETTINGS) as server:
        yield Worker(server)


def subscriptions(worker: Worker, topic: str) -> list[str]:
    found: list[str] = _admin(worker, "GET", f"persistent/public/default/{topic}/subscriptions")
    return found


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_subscription_goes_with_its_function_unless_it_shall_stay(self, worker: Worker) -> None:
        make = f"admin functions create --tenant public --namespace default --py {CODE / 'plain.py'}"
        make += " --classname plain.process"
        run_pulsar_shell(
            worker.server,
            [
                f"{make} --name goes --inputs goes-in",
                f"{make} --name stays --inputs stays-in --cleanup-subscription=false",
            ],
        )
        for name in ("goes", "stays"):
            worker.until_running(name)
            assert subscriptions(worker, f"{name}-in") == [f"public/default/{name}"]
        delete = "admin functions delete --tenant public --namespace default"
        goes, stays = run_pulsar_shell(
            worker.server, [f"{delete} --name {name}" for name in ("goes", "stays")]
        )
        assert "Deleted successfully" in goes
        assert "Deleted successfully" in stays
        assert subscriptions(worker, "goes-in") == []
        assert subscriptions(worker, "stays-in") == ["public/default/stays"]

    def test_namespace_goes_with_its_functions_only_if_it_is_forced(self, worker: Worker) -> None:
        which = "--tenant public --namespace full --name f"
        run_pulsar_shell(
            worker.server,
            [
                "admin namespaces create public/full",
                f"admin functions create {which} --py {CODE / 'plain.py'} --classname plain.process"
                " --inputs public/default/of-full",
            ],
        )
        with pytest.raises(urllib.error.HTTPError) as caught:
            _admin(worker, "DELETE", "namespaces/public/full")
        assert (caught.value.code, "it has functions" in caught.value.read().decode()) == (409, True)
        run_pulsar_shell(
            worker.server,
            ["admin namespaces delete public/full --force", "admin namespaces create public/full"],
        )
        (listed,) = run_pulsar_shell(worker.server, ["admin functions list --tenant public --namespace full"])
        assert listed == ""
        folders = worker.server.data_dir / "functions"
        assert not [one for one in folders.glob("*/work/*") if one.is_file() and "of-full" in one.read_text()]


def test_subscriptions_of_a_pattern_go_and_others_stay(worker: Worker) -> None:
    with client_of(worker.server) as client:
        for topic in ("reads-1", "reads-2", "leaves-1"):
            client.subscribe(f"persistent://public/default/{topic}", "mine").close()
        worker.create(
            "reads",
            "plain.py",
            "plain.process",
            topicsPattern="persistent://public/default/reads-.*",
            subName="mine",
            output="reads",
        )
        output = client.subscribe("reads", "s")
        for topic in ("reads-1", "reads-2"):
            client.create_producer(topic).send(topic.encode())
        assert texts(output, 2) == ["<reads-1>", "<reads-2>"]
    worker.ask("reads", "DELETE")
    assert [subscriptions(worker, one) for one in ("reads-1", "reads-2", "leaves-1")] == [[], [], ["mine"]]


def _admin(worker: Worker, method: str, path: str) -> Any:
    request = urllib.request.Request(f"{worker.server.http_url}/admin/v2/{path}", method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        content = answer.read()
    return json.loads(content) if content else None
