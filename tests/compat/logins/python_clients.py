"""Clients for Python log in: confluent-kafka (librdkafka), kafka-python, aiokafka, pulsar-client.

    python python_clients.py LOGINS [PART_OF_AN_ID...]

One line for each login, `SEEN client::mechanism::case seconds what`: `let in` for a record that was written and read
again, or the error that the client's user gets.  Each client has a thread, and its logins one after another.
"""

import asyncio
import json
import logging
import ssl
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import aiokafka
import confluent_kafka
import kafka
import pulsar
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from kafka.net.sasl.oauth import AbstractTokenProvider

Login = dict[str, str]
LET_IN: Final = "let in"
RIGHT: Final = "right"
PATIENCE_S: Final = 30.0  # with right credentials, on a machine that is busy
REFUSED_S: Final = 2.0  # after this a client that tries again for ever is to give up
REFUSALS: Final = ("_AUTHENTICATION", "_SSL")  # of librdkafka, which also says that it has no connection
UNSUPPORTED: Final = {"delegation-token"}  # none of these clients says `tokenauth`


def patience_s(login: Login) -> float:
    return PATIENCE_S if login["case"] == RIGHT else REFUSED_S


# --- librdkafka ---


def confluent_settings(login: Login) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": login["address"],
        "security.protocol": login["protocol"].lower(),
        "ssl.ca.location": login["ca"],
        "log_level": 0,
    }
    if "certificate" in login:
        settings |= {"ssl.certificate.location": login["certificate"], "ssl.key.location": login["key"]}
    if "sasl" in login:
        settings["sasl.mechanism"] = login["sasl"]
    if "token_url" in login:
        settings |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": login["token_url"],
            "sasl.oauthbearer.client.id": login["client_id"],
            "sasl.oauthbearer.client.secret": login["client_secret"],
        }
    elif "sasl" in login:
        settings |= {"sasl.username": login["user"], "sasl.password": login["password"]}
    return settings


def confluent(login: Login, value: bytes) -> str:
    said: list[str] = []
    delivered: list[Any] = []
    settings = {**confluent_settings(login), "error_cb": lambda error: said.append(error.name())}
    producer = confluent_kafka.Producer(settings)
    producer.produce(login["topic"], value, on_delivery=lambda *answer: delivered.append(answer))
    until = time.monotonic() + patience_s(login)
    while not delivered and not set(said) & set(REFUSALS) and time.monotonic() < until:
        producer.poll(0.05)
    if not delivered:
        producer.purge()
        return next((one for one in said if one in REFUSALS), said[0] if said else "no answer")
    error, message = delivered[0]
    if error is not None:
        return str(error.name())
    consumer = confluent_kafka.Consumer({**settings, "group.id": "unused"})
    try:
        consumer.assign([confluent_kafka.TopicPartition(login["topic"], 0, message.offset())])
        found = consumer.poll(PATIENCE_S)
        if found is None:
            return "nothing to read"
        if (failure := found.error()) is not None:
            return str(failure.name())
        return LET_IN if found.value() == value else "another record"
    finally:
        consumer.close()


# --- kafka-python and aiokafka, whose settings have the same names ---


def python_settings(login: Login, tokens: Callable[[str], Any]) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=login["ca"])
    if "both" in login:
        context.load_cert_chain(login["both"])
    settings: dict[str, Any] = {
        "bootstrap_servers": login["address"],
        "security_protocol": login["protocol"],
        "ssl_context": context,
    }
    if "sasl" in login:
        settings["sasl_mechanism"] = login["sasl"]
    if "token" in login:
        settings["sasl_oauth_token_provider"] = tokens(login["token"])
    elif "sasl" in login:
        settings |= {"sasl_plain_username": login["user"], "sasl_plain_password": login["password"]}
    return settings


class PythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AioTokens(AiokafkaTokens):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def kafka_python(login: Login, value: bytes) -> str:
    settings = python_settings(login, PythonTokens)
    try:
        producer = kafka.KafkaProducer(**settings, bootstrap_timeout_ms=patience_s(login) * 1000)
    except kafka.errors.KafkaError as error:
        return type(error).__name__
    try:
        sent = producer.send(login["topic"], value).get(PATIENCE_S)
    finally:
        producer.close()
    consumer = kafka.KafkaConsumer(**settings, consumer_timeout_ms=PATIENCE_S * 1000)
    try:
        where = kafka.TopicPartition(login["topic"], 0)
        consumer.assign([where])
        consumer.seek(where, sent.offset)
        return LET_IN if next(consumer).value == value else "another record"
    finally:
        consumer.close()


def aio_kafka(login: Login, value: bytes) -> str:
    async def scenario() -> str:
        settings = python_settings(login, AioTokens)
        producer = aiokafka.AIOKafkaProducer(**settings, request_timeout_ms=int(patience_s(login) * 1000))
        try:
            await producer.start()
            sent = await producer.send_and_wait(login["topic"], value)
        except aiokafka.errors.KafkaError as error:
            return type(error).__name__
        finally:
            await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(**settings)
        await consumer.start()
        try:
            where = aiokafka.TopicPartition(login["topic"], 0)
            consumer.assign([where])
            consumer.seek(where, sent.offset)
            found = await asyncio.wait_for(consumer.getone(), PATIENCE_S)
            return LET_IN if found.value == value else "another record"
        finally:
            await consumer.stop()

    return asyncio.run(scenario())


# --- pulsar-client ---


def pulsar_authentication(login: Login) -> pulsar.Authentication:
    match login["mechanism"]:
        case "token" | "TLS":
            return pulsar.AuthenticationToken(login["token"])
        case "mTLS":
            return pulsar.AuthenticationTLS(login["certificate"], login["key"])
        case "basic":
            return pulsar.AuthenticationBasic(login["user"], login["password"])
    asked = {
        "issuer_url": login["issuer"],
        "private_key": login["credentials"],
        "audience": login["audience"],
    }
    return pulsar.AuthenticationOauth2(json.dumps(asked))


def pulsar_client(login: Login, value: bytes) -> str:
    client = pulsar.Client(
        login["url"],
        pulsar_authentication(login),
        tls_trust_certs_file_path=login["ca"],
        tls_validate_hostname=True,
        operation_timeout_seconds=int(patience_s(login)),
        logger=logging.getLogger(),
    )
    try:
        reader = client.create_reader(login["topic"], pulsar.MessageId.latest)
        client.create_producer(login["topic"]).send(value)
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:  # others write to this topic at the same time
            if reader.read_next(int(PATIENCE_S * 1000)).data() == value:
                return LET_IN
        return "nothing to read"
    except pulsar.PulsarException as error:
        return type(error).__name__
    finally:
        client.close()


CLIENTS: Final[dict[str, tuple[str, Callable[[Login, bytes], str]]]] = {
    "confluent-kafka": ("kafka", confluent),
    "kafka-python": ("kafka", kafka_python),
    "aiokafka": ("kafka", aio_kafka),
    "pulsar-client": ("pulsar", pulsar_client),
}


def run(
    client: str, attempt: Callable[[Login, bytes], str], logins: Sequence[Login], words: list[str]
) -> None:
    for login in logins:
        test_id = f"{client}::{login['mechanism']}::{login['case']}"
        if login["mechanism"] in UNSUPPORTED or (words and not any(word in test_id for word in words)):
            continue
        began = time.monotonic()
        try:
            what = attempt(login, test_id.encode())
        except Exception as error:  # noqa: BLE001 - the table says what it is to be
            what = f"{type(error).__name__}: {error}".splitlines()[0]
        # In one piece, also where several threads print.
        print(f"SEEN {test_id} {time.monotonic() - began:.1f} {what}\n", end="", flush=True)


def main(file: str, *words: str) -> None:
    logging.disable()
    logins: dict[str, list[Login]] = json.loads(Path(file).read_text())
    threads = [
        threading.Thread(target=run, args=(name, attempt, logins.get(door, []), list(words)))
        for name, (door, attempt) in CLIENTS.items()
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
