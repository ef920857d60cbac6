"""What Kafka's clients write Pulsar's read, and the reverse: content, keys, headers, timestamps, order, positions."""

from collections.abc import Callable

import pytest

from tests.clients.adapters import Client, Confluent, KafkaPython
from tests.clients.interop import interop_checks
from tests.clients.interop.interop_corpus import KAFKA_COMPRESSIONS, MODES, Mode
from tests.clients.interop.interop_doors import Doors
from tests.clients.interop.pulsar_python import PulsarPython

# kafka-python leaves sockets for the garbage collector to close.
pytestmark = [
    pytest.mark.clients,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KAFKA = (Confluent(), KafkaPython())
PULSAR = PulsarPython()
FreshName = Callable[[str], str]


@pytest.mark.parametrize("compression", KAFKA_COMPRESSIONS)
@pytest.mark.parametrize("producer", KAFKA, ids=lambda client: f"from-{client.name}")
def test_pulsar_reads_what_a_kafka_client_wrote(
    doors: Doors, fresh_name: FreshName, producer: Client, compression: str
) -> None:
    interop_checks.kafka_to_pulsar(doors, fresh_name, producer, compression, [PULSAR])


@pytest.mark.parametrize("mode", MODES, ids=str)
def test_kafka_clients_read_what_pulsar_wrote(doors: Doors, fresh_name: FreshName, mode: Mode) -> None:
    interop_checks.pulsar_to_kafka(doors, fresh_name, PULSAR, mode, KAFKA)


def test_a_chunked_message_is_one_record_and_its_offsets_stay_dense(
    doors: Doors, fresh_name: FreshName
) -> None:
    interop_checks.chunks_are_one_record(doors, fresh_name, PULSAR, KAFKA)


@pytest.mark.parametrize("producer", KAFKA, ids=lambda client: f"from-{client.name}")
def test_records_as_large_as_pulsars_messages_reach_pulsar(
    doors: Doors, fresh_name: FreshName, producer: Client
) -> None:
    interop_checks.large_records_reach_pulsar(doors, fresh_name, producer, PULSAR)


def test_both_write_one_topic_and_all_clients_read_the_same_log(doors: Doors, fresh_name: FreshName) -> None:
    interop_checks.writers_take_turns(doors, fresh_name, KAFKA, [PULSAR])
