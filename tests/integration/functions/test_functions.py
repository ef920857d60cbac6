"""Python functions, which the real `pulsar-admin functions` creates, and pulsar-client feeds."""

import json
import time
from pathlib import Path

import pytest

from magnetar.server.function_instances import LOG_BYTES_MAX
from magnetar.testing.server import MagnetarProcess
from tests.integration.functions.worker import CODE, PATIENCE_S, SETTINGS, Worker, client_of, texts
from tests.integration.java_tools import needs_java, run_pulsar_shell

pytestmark = [pytest.mark.clients, pytest.mark.slow, pytest.mark.timeout(600)]


class TestPulsarAdmin:
    pytestmark = needs_java

    def test_real_pulsar_admin_manages_a_function(self, worker: Worker) -> None:
        which = "--tenant public --namespace default --name excited"
        config = '\'{"mark":"?"}\''
        made, listed, shown = run_pulsar_shell(
            worker.server,
            [
                f"admin functions create {which} --py {CODE / 'exclamation.py'}"
                " --classname exclamation.Exclamation --inputs calm --output excited-out"
                f" --log-topic excited-log --user-config {config}",
                "admin functions list --tenant public --namespace default",
                f"admin functions get {which}",
            ],
        )
        assert "Created successfully" in made
        assert "excited" in listed
        assert json.loads(shown[shown.index("{") :])["className"] == "exclamation.Exclamation"
        worker.until_running("excited")
        with client_of(worker.server) as client:
            output, logged = client.subscribe("excited-out", "s"), client.subscribe("excited-log", "s")
            producer = client.create_producer("calm")
            producer.send(b"hello")
            assert texts(output, 1) == ["hello?"]
            assert texts(logged, 1) == ["got hello"]
            worker.until("excited", lambda one: one["numSuccessfullyProcessed"] == 1)
            status, stats, _, _, _, updated, started, deleted = run_pulsar_shell(
                worker.server,
                [
                    f"admin functions status {which}",
                    f"admin functions stats {which}",
                    f'admin functions putstate {which} --state \'{{"key":"k","stringValue":"v"}}\'',
                    f"admin functions querystate {which} -k k",
                    f"admin functions stop {which}",
                    f"admin functions update {which} --parallelism 2",
                    f"admin functions start {which}",
                    f"admin functions delete {which}",
                ],
            )
        assert '"numSuccessfullyProcessed" : 1' in status
        assert '"processedSuccessfullyTotal" : 1' in stats
        assert "Updated successfully" in updated
        assert "Started successfully" in started
        assert "Deleted successfully" in deleted

    def test_real_pulsar_admin_takes_new_code_and_gives_it_back(self, worker: Worker, tmp_path: Path) -> None:
        which = "--tenant public --namespace default --name renewed"
        old, new = tmp_path / "renewed.py", tmp_path / "new" / "renewed.py"
        new.parent.mkdir()
        old.write_text("def process(input):\n    return f'<{input}>'\n")
        new.write_text("def process(input):\n    return f'[{input}]'\n")
        run_pulsar_shell(
            worker.server,
            [
                f"admin functions create {which} --py {old} --classname renewed.process --inputs renewed-in"
                " --output renewed-out",
                f"admin functions download {which} --destination-file {tmp_path / 'first'}",
                f"admin functions update {which} --py {new}",
                f"admin functions download {which} --destination-file {tmp_path / 'second'}",
            ],
        )
        assert (tmp_path / "first").read_bytes() == old.read_bytes()
        assert (tmp_path / "second").read_bytes() == new.read_bytes()
        # Its subscription begins with the first message after it runs.
        worker.until_running("renewed")
        with client_of(worker.server) as client:
            output, producer = client.subscribe("renewed-out", "s"), client.create_producer("renewed-in")
            producer.send(b"a")
            while texts(output, 1) != ["[a]"]:  # the old code may run for a moment
                producer.send(b"a")
            (status,) = run_pulsar_shell(
                worker.server, [f"admin functions getstatus {which} --instance-id 0"]
            )
        assert json.loads(status[status.index("{") :])["running"]


def test_plain_function_keeps_its_place_while_it_is_stopped(worker: Worker) -> None:
    worker.create("plain", "plain.py", "plain.process", inputs=["plain-in"], output="plain-out")
    with client_of(worker.server) as client:
        output, producer = client.subscribe("plain-out", "s"), client.create_producer("plain-in")
        producer.send(b"a")
        assert texts(output, 1) == ["<a>"]
        worker.ask("plain/stop", "POST")
        worker.until("plain", lambda one: not one["running"])
        producer.send(b"b")
        worker.ask("plain/start", "POST")
        assert texts(output, 1) == ["<b>"]


def test_exception_is_a_status_and_its_message_goes_to_the_dead_letter_topic(worker: Worker) -> None:
    worker.create(
        "route",
        "routing.py",
        "routing.Routing",
        customSerdeInputs={"baskets": "routing.Pair"},
        maxMessageRetries=1,
        deadLetterTopic="inedible",
    )
    with client_of(worker.server) as client:
        fruit, dead = client.subscribe("fruit", "s"), client.subscribe("inedible", "s")
        producer = client.create_producer("baskets")
        producer.send(b"stone:granite")
        producer.send(b"fruit:pear")
        message = fruit.receive(int(PATIENCE_S * 1000))
        assert message.data() == b"pear"
        assert message.properties()["from"].endswith("/baskets")
        assert texts(dead, 1) == ["stone:granite"]
    status = worker.until("route", lambda one: one["numUserExceptions"] >= 2)
    assert status["running"]
    assert "ValueError: nobody eats granite" in status["latestUserExceptions"][0]["exceptionString"]


def test_callbacks_log_and_their_exceptions_are_a_status_and_end_no_process(worker: Worker) -> None:
    names = {"inputs": ["called"], "output": "said", "logTopic": "called-log"}
    worker.create("calls-back", "calls_back.py", "calls_back.CallsBack", **names)
    with client_of(worker.server) as client:
        output, aside, logged = (
            client.subscribe(name, "s") for name in ("said", "called-aside", "called-log")
        )
        producer = client.create_producer("called")
        for number in range(3):
            producer.send(b"%d" % number)
        assert texts(output, 3) == texts(aside, 3) == ["0", "1", "2"]
        assert texts(logged, 3) == ["stored 0", "stored 1", "stored 2"]
    status = worker.until("calls-back", lambda one: one["numUserExceptions"] == 3)
    assert "ValueError: 0" in status["latestUserExceptions"][0]["exceptionString"]
    assert (status["running"], status["numRestarts"]) == (True, 0)


def test_pattern_of_inputs_and_order(worker: Worker) -> None:
    with client_of(worker.server) as client:
        producers = [client.create_producer(f"many-{number}") for number in range(2)]
        worker.create(
            "many",
            "plain.py",
            "plain.process",
            topicsPattern="persistent://public/default/many-.*",
            output="all",
            retainOrdering=True,
        )
        output = client.subscribe("all", "s")
        for number in range(20):
            producers[number % 2].send(f"{number % 2}-{number:02}".encode())
        got = [output.receive(int(PATIENCE_S * 1000)).data().decode() for _ in range(20)]
    for side in "01":
        mine = [one for one in got if one.startswith(f"<{side}")]
        assert mine == sorted(mine)


def test_process_that_ends_is_replaced_and_what_it_takes_is_limited(worker: Worker) -> None:
    worker.create(
        "hungry",
        "hungry.py",
        "hungry.Hungry",
        inputs=["food"],
        output="fed",
        maxMessageRetries=1,
        resources={"ram": 256 << 20},
    )
    with client_of(worker.server) as client:
        output, producer = client.subscribe("fed", "s"), client.create_producer("food")
        producer.send(b"end")
        assert texts(output, 1) == ["end"]
        assert worker.until("hungry", lambda one: bool(one["running"]))["numRestarts"] >= 1
        producer.send(b"eat")
        status = worker.until("hungry", lambda one: one["numUserExceptions"] >= 1)
        assert "MemoryError" in status["latestUserExceptions"][-1]["exceptionString"]
        producer.send(b"hoard")
        worker.until("hungry", lambda one: "File too large" in str(one["latestUserExceptions"]))
        producer.send(b"shout")
        logs = worker.server.data_dir / "functions"
        worker.until("hungry", lambda _: any(logs.glob("*/log.1")))
        # The log is longer until its end has been copied.
        worker.until(
            "hungry", lambda _: all(log.stat().st_size <= LOG_BYTES_MAX for log in logs.glob("*/log*"))
        )


def test_what_is_not_served_is_refused_by_name(worker: Worker) -> None:
    declared = {"className": "plain.process", "inputs": ["x"]}
    for words, said in (
        ({"processingGuarantees": "EXACTLY_ONCE"}, "EXACTLY_ONCE"),
        (
            {"processingGuarantees": "EFFECTIVELY_ONCE", "parallelism": 2},
            "EFFECTIVELY_ONCE with a parallelism",
        ),
        ({"processingGuarantees": "EFFECTIVELY_ONCE", "output": "y"}, "needs deduplication"),
        (
            {"processingGuarantees": "EFFECTIVELY_ONCE", "inputs": ["non-persistent://public/default/x"]},
            "persistent",
        ),
        ({"secrets": {"a": {"path": "vault", "key": "k"}}}, "there is no key store 'vault'"),
        ({"windowConfig": {"windowLengthCount": 1}}, "Windows"),
        ({"output": "y", "outputSchemaType": "protobuf"}, "the schema protobuf of a function"),
        ({"jar": "a.jar"}, "Java"),
        ({"nonsense": 1}, "knows no word 'nonsense'"),
        ({"inputs": []}, "No input topic(s) specified"),
    ):
        status, reason = worker.refused("never", "plain.py", **{**declared, **words})
        assert (status, said in reason) == (400, True), reason
    assert "never" not in worker.names()


def test_keys_of_the_state_may_be_called_as_verbs_are(worker: Worker) -> None:
    worker.create("verbs", "words.py", "words.WordCount", inputs=["verbs-in"])
    for key in ("start", "stop", "restart", "status", "stats", "0"):
        worker.put_state("verbs", key, f"kept of {key}")
        assert worker.ask(f"verbs/state/{key}")["stringValue"] == f"kept of {key}"
    assert worker.status("verbs")["running"]


def test_functions_and_their_state_survive_a_kill(tmp_path: Path) -> None:
    with MagnetarProcess(settings=SETTINGS, data_dir=tmp_path / "data") as server:
        worker = Worker(server)
        worker.create("words", "words.py", "words.WordCount", inputs=["texts"])
        with client_of(server) as client:
            producer = client.create_producer("texts")
            producer.send(b"to be or not to be")
            worker.until("words", lambda one: one["numSuccessfullyProcessed"] == 1)
            stats = worker.ask("words/stats")
            assert stats["instances"][0]["metrics"]["userMetrics"]["words_sum"] == 6
        server.kill()
        server.start()
        worker.until_running("words")
        # The acknowledgement may not have been durable, and then the message is counted again.
        assert worker.ask("words/state/to")["numberValue"] >= 2
        assert worker.ask("words/state/last")["stringValue"] == "to be or not to be"
        with client_of(server) as client:
            client.create_producer("texts").send(b"that is it")
            worker.until("words", lambda one: one["numSuccessfullyProcessed"] >= 1)
            ends = time.monotonic() + PATIENCE_S
            while worker.ask("words/state/last")["stringValue"] != "that is it":
                assert time.monotonic() < ends
                time.sleep(0.2)


def test_server_runs_no_functions_unless_it_is_told_to() -> None:
    with MagnetarProcess() as server:
        status, reason = Worker(server).refused("no", "plain.py", className="plain.process", inputs=["x"])
    assert (status, "functionsWorkerEnabled" in reason) == (501, True)
