"""The provider `DynamoDB`, as a task uses it, and moto's server as its target; boto3 reads that."""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest
from boto3.dynamodb.types import TypeDeserializer

from magnetar.replicators.aws.client import PAUSES_S
from magnetar.replicators.dynamodb.provider import DynamoDbProvider
from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer
from magnetar.testing.server import free_ports
from tests.aws_peer import KEYS, REGION, Answer, Line, MotoServer, refusal

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SOURCE = "persistent://public/default/orders"
PLACE = f"{SOURCE}-partition-0"
_names = itertools.count()


class Table:
    """A table; `keys` are its partition key and its sort key, as name and type."""

    def __init__(self, moto: MotoServer, *keys: str, url: str | None = None) -> None:
        self.name = f"table-{os.getpid()}-{next(_names)}"
        self._url = url or moto.url
        self.client = moto.client("dynamodb")
        self.make(*(keys or ("place:S", "number:N")))

    def make(self, *keys: str) -> None:
        pairs = [key.split(":") for key in keys]
        self.client.create_table(
            TableName=self.name,
            KeySchema=[
                {"AttributeName": name, "KeyType": kind}
                for (name, _), kind in zip(pairs, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": kind} for name, kind in pairs],
            BillingMode="PAY_PER_REQUEST",
        )

    @contextmanager
    def producer(self, **properties: str) -> Iterator[ReplicatorProducer]:
        made = opened(self._url, self.name, KEYS, **properties)
        try:
            yield made
        finally:
            made.close()

    def items(self) -> list[dict[str, Any]]:
        read = TypeDeserializer()
        pages = self.client.get_paginator("scan").paginate(TableName=self.name)
        return [
            {name: _plain(read.deserialize(value)) for name, value in item.items()}
            for page in pages
            for item in page["Items"]
        ]


def _plain(value: Any) -> Any:
    """boto3's wrapped bytes as bytes, everywhere."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return bytes(value) if hasattr(value, "value") else value


def opened(url: str, target: str, credentials: dict[str, str], **properties: str) -> ReplicatorProducer:
    given = {"awsRegion": REGION, "awsEndpoint": url, **properties}
    policies = ReplicatorPolicies("r", given, {"orders": target}, credentials=credentials)
    provider = DynamoDbProvider()
    provider.validate_properties("public/default", policies)
    return provider.create_producer(SOURCE, policies)


def record(
    offset: int, value: bytes | None = b"v", key: bytes | None = b"k", **more: Any
) -> ReplicatedRecord:
    fields = {"partition": 0, "timestamp_ms": 1_000 + offset, **more}
    return ReplicatedRecord(offset=offset, key=key, value=value, **fields)


def numbered(first: int, end: int, keys: int = 10) -> list[ReplicatedRecord]:
    return [record(number, b"%d" % number, b"k%d" % (number % keys)) for number in range(first, end)]


def deliver(producer: ReplicatorProducer, records: Sequence[ReplicatedRecord]) -> None:
    producer.send(records)
    producer.flush()


def values(table: Table) -> list[int]:
    return sorted(int(item["__value"]) for item in table.items())


def test_an_item_has_all_that_a_record_has(moto: MotoServer) -> None:
    table = Table(moto)
    headers = [("a", b"1"), ("a", b"\xfe"), ("none", None)]
    with table.producer() as producer:
        deliver(
            producer,
            [record(5, b"\xffv", b"\xff\x00", headers=headers, partition=3), record(6, None, None)],
        )
    first, second = sorted(table.items(), key=lambda item: int(item["number"]))
    assert first == {
        "place": f"{SOURCE}-partition-3",
        "number": 5,
        "__timestamp": 1005,
        "__key": b"\xff\x00",
        "__value": b"\xffv",
        "__headers": [
            {"name": "a", "value": b"1"},
            {"name": "a", "value": b"\xfe"},
            {"name": "none", "value": None},
        ],
    }
    assert second == {"place": PLACE, "number": 6, "__timestamp": 1006}


def test_fields_are_attributes_and_keys_go_before_them(moto: MotoServer) -> None:
    table = Table(moto)
    fields = {
        "text": "a",
        "whole": 1 << 60,
        "half": 0.5,
        "nothing": None,
        "yes": True,
        "bytes": b"\xff",
        "list": [1, None],
        "map": {"a": {"b": 2}},
        "huge": 1e300,
        "place": "not this",
        "__timestamp": "nor this",
    }
    with table.producer() as producer:
        deliver(producer, [record(0, b"{}", fields=fields)])
    [item] = table.items()
    assert item == {
        **fields,
        "half": Decimal("0.5"),
        "huge": "1e+300",
        "place": PLACE,
        "number": 0,
        "__timestamp": 1000,
        "__key": b"k",
    }


def test_what_is_sent_twice_is_there_once(moto: MotoServer, line: Line) -> None:
    table = Table(moto, url=line.url)
    with table.producer() as producer:
        deliver(producer, numbered(0, 100))
        deliver(producer, numbered(50, 150))
    assert values(table) == list(range(150))
    sizes = [
        len(body["RequestItems"][table.name]) for action, body in line.requests if action == "BatchWriteItem"
    ]
    assert max(sizes) == 25


def test_upsert_keeps_the_last_record_of_each_key_and_none_removes_it(moto: MotoServer) -> None:
    table = Table(moto, "id:S")
    with table.producer(writeMode="upsert") as producer:
        deliver(producer, numbered(0, 95))
        deliver(producer, [record(95, None, b"k0"), record(96, b"x", b"new"), record(97, None, b"new")])
        deliver(producer, [record(98, None, b"k1"), record(99, b"99", b"k1")])
    found = {item["id"]: item for item in table.items()}
    assert {key: int(item["__value"]) for key, item in found.items()} == {
        "k1": 99,
        **{f"k{number % 10}": number for number in range(86, 95) if number % 10 > 1},
        "k5": 85,
        **{f"k{number}": 80 + number for number in range(6, 10)},
    }
    assert (found["k1"]["__partition"], found["k1"]["__offset"]) == (0, 99)


def test_upsert_by_bytes_and_a_record_without_a_key_is_poison(moto: MotoServer) -> None:
    table = Table(moto, "id:B")
    with table.producer(writeMode="upsert") as producer:
        producer.send([record(0, b"a", b"\xff"), record(1, b"b", None), record(2, b"c", b"")])
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
    assert {(one.offset, reason) for one, reason in caught.value.records} == {
        (1, "it has no key, and writeMode is upsert"),
        (2, "it has no key, and writeMode is upsert"),
    }
    assert [(item["id"], item["__value"]) for item in table.items()] == [(b"\xff", b"a")]


def leaving(count: int) -> Any:
    """A fault that leaves the first items of `count` requests undone."""
    left = itertools.count()

    def fault(action: str, body: Any, ask: Any) -> Answer | None:
        if action != "BatchWriteItem" or next(left) >= count:
            return None
        [(name, requests)] = body["RequestItems"].items()
        undone, passed = requests[:20], requests[20:]
        if passed:
            ask({**body, "RequestItems": {name: passed}})
        return 200, json.dumps({"UnprocessedItems": {name: undone}}).encode()

    return fault


@pytest.mark.parametrize(("mode", "key"), [("append", None), ("upsert", "id:S")])
def test_what_is_left_undone_is_sent_again(moto: MotoServer, line: Line, mode: str, key: str | None) -> None:
    table = Table(moto, *([key] if key else []), url=line.url)
    line.fault = leaving(3)
    with table.producer(writeMode=mode) as producer:
        deliver(producer, numbered(0, 200, keys=50))
    assert values(table) == (list(range(200)) if mode == "append" else list(range(150, 200)))


def test_a_table_that_stays_throttled_is_said_after_growing_pauses(
    moto: MotoServer, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Table(moto, url=line.url)
    pauses: list[float] = []
    with table.producer() as producer:
        monkeypatch.setattr(producer, "_sleep", pauses.append)
        line.fault = lambda action, body, ask: refusal("ProvisionedThroughputExceededException")
        with pytest.raises(TargetUnavailable, match="ProvisionedThroughputExceededException"):
            deliver(producer, numbered(0, 3))
    assert pauses == list(PAUSES_S)


def test_records_that_the_table_never_takes_are_poison_and_the_others_arrive(moto: MotoServer) -> None:
    table = Table(moto)
    with table.producer() as producer:
        producer.send(
            [record(0, b"0"), record(1, b"x" * 409_000), record(2, b"x" * 409_700), record(3, b"3")]
        )
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
        deliver(producer, [record(4, b"4")])
    found = {one.offset: reason for one, reason in caught.value.records}
    assert found.keys() == {1, 2}  # moto takes somewhat less than DynamoDB itself
    assert "Item size has exceeded the maximum allowed size" in found[1]
    assert found[2].startswith("it is too large for DynamoDB")
    assert values(table) == [0, 3, 4]


def test_the_record_before_a_poisonous_one_is_that_of_the_key(moto: MotoServer) -> None:
    table = Table(moto, "id:S")
    with table.producer(writeMode="upsert") as producer:
        producer.send(
            [record(0, b"0"), record(1, b"1"), record(2, b"x" * 409_000), record(3, b"3", b"other")]
        )
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
    assert [one.offset for one, _ in caught.value.records] == [2]
    assert values(table) == [1, 3]


def test_nothing_is_poison_of_a_table_that_was_made_anew(moto: MotoServer) -> None:
    table = Table(moto)
    with table.producer() as producer:
        deliver(producer, [record(0)])
        table.client.delete_table(TableName=table.name)
        table.make("other:S")
        with pytest.raises(TargetUnavailable, match="has another key than before"):
            deliver(producer, numbered(1, 4))


@pytest.mark.parametrize(
    ("mode", "keys", "said"),
    [
        ("append", ["id:S"], "needs a partition key of type S and a sort key of type N"),
        ("append", ["id:B", "n:N"], "needs a partition key of type S and a sort key of type N"),
        ("append", ["id:S", "n:S"], "needs a partition key of type S and a sort key of type N"),
        ("upsert", ["id:N"], "needs a partition key of type S or B and no sort key"),
        ("upsert", ["id:S", "n:N"], "needs a partition key of type S or B and no sort key"),
    ],
)
def test_a_table_with_another_key_is_refused(moto: MotoServer, mode: str, keys: list[str], said: str) -> None:
    table = Table(moto, *keys)
    with pytest.raises(ReplicatorConfigError, match=said), table.producer(writeMode=mode):
        pass


def test_a_port_that_refuses_and_a_table_that_is_not_there_are_said(moto: MotoServer) -> None:
    [port] = free_ports(1)
    with pytest.raises(TargetUnavailable, match="table xyz of DynamoDB does not answer"):
        opened(f"http://127.0.0.1:{port}", "xyz", KEYS)
    with pytest.raises(TargetUnavailable, match="ResourceNotFoundException"):
        opened(moto.url, "nowhere", KEYS)


def test_wrong_keys_are_refused() -> None:
    with MotoServer() as moto:
        table = Table(moto)
        moto.ask_for_credentials()
        with pytest.raises(CredentialsRefused, match="AWS refuses who writes to table") as caught:
            opened(moto.url, table.name, KEYS)
    assert KEYS["secretKey"] not in str(caught.value)


def test_a_mode_that_there_is_not_is_named() -> None:
    with pytest.raises(ReplicatorConfigError, match="writeMode must be one of append, upsert, not 'insert'"):
        opened("http://127.0.0.1:1", "xyz", KEYS, writeMode="insert")
