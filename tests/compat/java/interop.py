"""The interop matrix with Java's clients in it; `suite_java.py` runs this file with pytest and says where things are.

What Java writes the Python clients read as well, and the reverse: pairs of Python clients alone are in
`tests/clients/interop`.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from java_bridge import Bridge, JavaKafka, JavaPulsar

from tests.clients.adapters import Confluent, KafkaPython
from tests.clients.interop import interop_checks
from tests.clients.interop.interop_corpus import KAFKA_COMPRESSIONS, MODES, Mode
from tests.clients.interop.interop_doors import Doors
from tests.clients.interop.pulsar_python import PulsarPython

KAFKA = (Confluent(), KafkaPython())
PULSAR = PulsarPython()
FreshName = Callable[[str], str]


@pytest.fixture(scope="module")
def doors() -> Doors:
    kafka, pulsar, http = (os.environ[f"INTEROP_{name}"] for name in ("KAFKA", "PULSAR", "HTTP"))
    return Doors(kafka, pulsar, http)


@pytest.fixture(scope="module")
def bridge(doors: Doors) -> Iterator[Bridge]:
    with Bridge(os.environ["INTEROP_CLASS_PATH"], doors, Path(os.environ["INTEROP_LOG"])) as bridge:
        yield bridge


@pytest.fixture
def fresh_name(request: pytest.FixtureRequest) -> FreshName:
    number = itertools.count()
    token = os.urandom(4).hex()
    return lambda what: f"{what}-{token}-{next(number)}"


@pytest.mark.parametrize("compression", KAFKA_COMPRESSIONS)
def test_pulsar_clients_read_what_java_kafka_wrote(
    doors: Doors, bridge: Bridge, fresh_name: FreshName, compression: str
) -> None:
    readers: list[interop_checks.PulsarSide] = [JavaPulsar(bridge), PULSAR]
    interop_checks.kafka_to_pulsar(doors, fresh_name, JavaKafka(bridge), compression, readers)


@pytest.mark.parametrize("compression", KAFKA_COMPRESSIONS)
@pytest.mark.parametrize("producer", KAFKA, ids=lambda client: f"from-{client.name}")
def test_java_pulsar_reads_what_a_kafka_client_wrote(
    doors: Doors, bridge: Bridge, fresh_name: FreshName, producer: Confluent | KafkaPython, compression: str
) -> None:
    interop_checks.kafka_to_pulsar(doors, fresh_name, producer, compression, [JavaPulsar(bridge)])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_kafka_clients_read_what_java_pulsar_wrote(
    doors: Doors, bridge: Bridge, fresh_name: FreshName, mode: Mode
) -> None:
    readers: list[interop_checks.KafkaSide] = [JavaKafka(bridge), *KAFKA]
    interop_checks.pulsar_to_kafka(doors, fresh_name, JavaPulsar(bridge), mode, readers)


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_java_kafka_reads_what_pulsar_client_wrote(
    doors: Doors, bridge: Bridge, fresh_name: FreshName, mode: Mode
) -> None:
    interop_checks.pulsar_to_kafka(doors, fresh_name, PULSAR, mode, [JavaKafka(bridge)])


def test_java_pulsars_chunks_are_one_record(doors: Doors, bridge: Bridge, fresh_name: FreshName) -> None:
    readers: list[interop_checks.KafkaSide] = [JavaKafka(bridge), *KAFKA]
    interop_checks.chunks_are_one_record(doors, fresh_name, JavaPulsar(bridge), readers)


def test_java_kafka_reads_pulsar_clients_chunks(doors: Doors, bridge: Bridge, fresh_name: FreshName) -> None:
    interop_checks.chunks_are_one_record(doors, fresh_name, PULSAR, [JavaKafka(bridge)])


def test_large_records_of_java_reach_java(doors: Doors, bridge: Bridge, fresh_name: FreshName) -> None:
    interop_checks.large_records_reach_pulsar(doors, fresh_name, JavaKafka(bridge), JavaPulsar(bridge))


def test_java_and_python_write_one_topic(doors: Doors, bridge: Bridge, fresh_name: FreshName) -> None:
    kafka: list[interop_checks.KafkaSide] = [JavaKafka(bridge), *KAFKA]
    interop_checks.writers_take_turns(doors, fresh_name, kafka, [JavaPulsar(bridge), PULSAR])
