"""Clients that we did not write make SCRAM credentials, and log in by them."""

import asyncio
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaProducer

from tests.integration.librdkafka import refused_login

from .guarded import Guarded

pytestmark = pytest.mark.clients
MECHANISMS = {"SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512}


def alter(guarded: Guarded, *changes: Any) -> None:
    admin = AdminClient(guarded.confluent("admin", "admin-secret"))
    for one in admin.alter_user_scram_credentials(list(changes)).values():
        one.result(20)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_clients(guarded: Guarded, topic: str, mechanism: str) -> None:
    user, other_user = (
        "user,=" + mechanism,
        "user-" + mechanism,
    )  # kafka-python and aiokafka do not escape names
    info = ScramCredentialInfo(MECHANISMS[mechanism], 8192)
    alter(guarded, *(UserScramCredentialUpsertion(one, info, b"scram-secret") for one in (user, other_user)))
    producer = confluent_kafka.Producer(guarded.confluent(user, "scram-secret", mechanism))
    producer.produce(topic, b"value")
    assert producer.flush(30) == 0
    settings = guarded.python(other_user, "scram-secret", mechanism)
    other = KafkaProducer(**settings)
    other.send(topic, b"value").get(30)
    other.close()

    async def produce() -> None:
        async with AIOKafkaProducer(**settings) as last:
            await last.send_and_wait(topic, b"value")

    asyncio.run(produce())
    refused_login(guarded.confluent(user, "wrong", mechanism))
    alter(guarded, UserScramCredentialDeletion(user, MECHANISMS[mechanism]))
    refused_login(guarded.confluent(user, "scram-secret", mechanism))
