"""What a person types first: kcat, and the console producer and consumer of Apache Kafka."""

import shutil
import subprocess
from collections.abc import Callable

import pytest

from tests.class_archives import kafka_tool
from tests.clients.adapters import create_topic
from tests.peers import is_here

pytestmark = pytest.mark.clients

TIMEOUT_S = 300.0  # two seconds on an idle machine
CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_what_kcat_wrote(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("kcat")
    lines = [f"key-{n}\tvalue {n}" for n in range(100)]
    run(
        ["kcat", "-b", bootstrap, "-t", topic, "-p", "0", "-P", "-K", "\t", "-H", "colour=blue"],
        "\n".join(lines) + "\n",
    )
    output = run(["kcat", "-b", bootstrap, "-t", topic, "-C", "-e", "-q", "-f", "%o\t%k\t%s\t%h\n"])
    assert output.splitlines() == [f"{n}\t{line}\tcolour=blue" for n, line in enumerate(lines)]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_lists_the_topic(bootstrap: str, fresh_name: Callable[[str], str]) -> None:
    topic = fresh_name("kcat-list")
    create_topic(bootstrap, topic, 3)
    output = run(["kcat", "-b", bootstrap, "-L", "-t", topic])
    assert f'topic "{topic}" with 3 partitions' in output


@pytest.mark.slow
@pytest.mark.skipif(
    not is_here("kafka"),
    reason="needs Java and the peer script of Kafka",
)
def test_java_console_consumer_reads_what_the_console_producer_wrote(
    bootstrap: str, fresh_name: Callable[[str], str]
) -> None:
    topic = fresh_name("console")
    create_topic(bootstrap, topic, 1)
    lines = [f"line {n} \U0001f9f2" for n in range(50)]
    produce = [*kafka_tool(), CONSOLE_PRODUCER, "--bootstrap-server", bootstrap, "--topic", topic]
    run(produce, "\n".join(lines) + "\n")
    consume = [*kafka_tool(), CONSOLE_CONSUMER, "--bootstrap-server", bootstrap, "--topic", topic]
    output = run([*consume, "--from-beginning", "--max-messages", "50", "--timeout-ms", "30000"])
    assert output.splitlines() == lines
