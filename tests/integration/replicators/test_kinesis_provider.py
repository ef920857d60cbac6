"""The provider `Kinesis`, as a task uses it, and moto's server as its target; boto3 reads that."""

import itertools
import json
import os
from base64 import b64decode
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from magnetar.replicators.aws.client import PAUSES_S
from magnetar.replicators.errors import (
    CredentialsRefused,
    PoisonRecords,
    ReplicatorConfigError,
    TargetUnavailable,
)
from magnetar.replicators.kinesis.provider import KinesisProvider
from magnetar.replicators.policies import ReplicatorPolicies
from magnetar.replicators.provider import ReplicatedRecord, ReplicatorProducer
from magnetar.testing.server import free_ports
from tests.aws_peer import KEYS, REGION, Answer, Line, MotoServer, records_of, refusal

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

SOURCE = "persistent://public/default/orders"
_names = itertools.count()


class Stream:
    """A stream with two shards."""

    def __init__(self, moto: MotoServer, url: str | None = None) -> None:
        self.name = f"stream-{os.getpid()}-{next(_names)}"
        self._url = url or moto.url
        self._client = moto.client("kinesis")
        self._client.create_stream(StreamName=self.name, ShardCount=2)
        self._client.get_waiter("stream_exists").wait(StreamName=self.name)

    @contextmanager
    def producer(self, **properties: str) -> Iterator[ReplicatorProducer]:
        given = {"awsRegion": REGION, "awsEndpoint": self._url, **properties}
        policies = ReplicatorPolicies("r", given, {"orders": self.name}, credentials=KEYS)
        provider = KinesisProvider()
        provider.validate_properties("public/default", policies)
        made = provider.create_producer(SOURCE, policies)
        try:
            yield made
        finally:
            made.close()

    def records(self) -> list[tuple[str, bytes]]:
        """(partition key, data) of each record, of each shard in order."""
        return records_of(self._client, self.name)

    def by_key(self) -> dict[str, list[bytes]]:
        found = defaultdict(list)
        for key, data in self.records():
            found[key].append(data)
        return dict(found)


def record(
    offset: int, value: bytes | None = b"v", key: bytes | None = b"k", **more: Any
) -> ReplicatedRecord:
    fields = {"partition": 0, "timestamp_ms": 1_000 + offset, **more}
    return ReplicatedRecord(offset=offset, key=key, value=value, **fields)


def numbered(count: int, keys: int = 10) -> list[ReplicatedRecord]:
    return [record(number, b"%d" % number, b"k%d" % (number % keys)) for number in range(count)]


def in_order(count: int, keys: int = 10) -> dict[str, list[bytes]]:
    return {f"k{key}": [b"%d" % number for number in range(key, count, keys)] for key in range(keys)}


def deliver(producer: ReplicatorProducer, records: Sequence[ReplicatedRecord]) -> None:
    producer.send(records)
    producer.flush()


def test_a_record_has_its_key_and_its_value(moto: MotoServer) -> None:
    stream = Stream(moto)
    with stream.producer() as producer:
        deliver(
            producer,
            [
                record(0, b"value", b"key"),
                record(1, b"\xff", b"\xff\x00"),
                record(2, b"x", None, partition=3),
                record(3, None, b""),
                record(4, b"long", b"l" * 300),
            ],
        )
    assert stream.by_key() == {
        "key": [b"value"],
        "/wA=": [b"\xff"],
        f"{SOURCE}-partition-3": [b"x"],
        f"{SOURCE}-partition-0": [b""],
        "l" * 256: [b"long"],
    }


def test_the_form_in_json_has_properties_too(moto: MotoServer) -> None:
    stream = Stream(moto)
    with stream.producer(messageFormat="FULL_MESSAGE_IN_JSON") as producer:
        headers = [("a", b"1"), ("a", b"\xfe"), ("none", None)]
        deliver(producer, [record(0, b"\x00v", headers=headers), record(1, None)])
    first, second = (json.loads(data) for _, data in stream.records())
    assert b64decode(first["payloadBase64"]) == b"\x00v"
    assert first["properties"] == {"a": "1", "a;1;base64": "/g==", "none;0;null": ""}
    assert second == {"payloadBase64": None, "properties": {}}


def test_requests_stay_within_the_limits_and_each_key_in_order(moto: MotoServer, line: Line) -> None:
    stream = Stream(moto, line.url)
    with stream.producer() as producer:
        deliver(producer, numbered(3_000, keys=1_000))
        large = [record(number, os.urandom(900_000), b"l%d" % number) for number in range(8)]
        deliver(producer, large)
    requests = [body["Records"] for action, body in line.requests if action == "PutRecords"]
    assert [len(one) for one in requests] == [500] * 6 + [5, 3]
    found = stream.by_key()
    assert {key: found[key] for key in found if key[0] == "k"} == in_order(3_000, keys=1_000)
    assert {key: found[key] for key in found if key[0] == "l"} == {
        f"l{one.offset}": [one.value] for one in large
    }


def refusing(code: str, which: Any) -> Any:
    """A fault that lets requests through but for the records that `which(number of the record)` names."""
    numbers = itertools.count()

    def fault(action: str, body: Any, ask: Any) -> Answer | None:
        if action != "PutRecords":
            return None
        refused = [which(next(numbers)) for _ in body["Records"]]
        passed = [one for one, no in zip(body["Records"], refused, strict=True) if not no]
        answers = iter(json.loads(ask({**body, "Records": passed})[1])["Records"] if passed else [])
        results = [
            {"ErrorCode": code, "ErrorMessage": "slow down"} if no else next(answers) for no in refused
        ]
        return 200, json.dumps({"FailedRecordCount": sum(refused), "Records": results}).encode()

    return fault


def test_what_kinesis_refuses_is_sent_again_alone_and_each_key_stays_in_order(
    moto: MotoServer, line: Line
) -> None:
    stream = Stream(moto, line.url)
    line.fault = refusing("ProvisionedThroughputExceededException", lambda number: number % 7 == 3)
    with stream.producer() as producer:
        deliver(producer, numbered(300))
    assert stream.by_key() == in_order(300)


def test_without_order_requests_are_full_and_nothing_is_lost(moto: MotoServer, line: Line) -> None:
    stream = Stream(moto, line.url)
    line.fault = refusing("InternalFailure", lambda number: number == 3)
    with stream.producer(retainOrdering="false") as producer:
        deliver(producer, numbered(400, keys=1))
    requests = [body["Records"] for action, body in line.requests if action == "PutRecords"]
    assert [len(one) for one in requests] == [400, 1]
    assert sorted(stream.by_key()["k0"], key=int) == in_order(400, keys=1)["k0"]


def test_a_stream_that_stays_throttled_is_said_after_growing_pauses(
    moto: MotoServer, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = Stream(moto, line.url)
    pauses: list[float] = []
    line.fault = lambda action, body, ask: refusal("LimitExceededException")
    with stream.producer() as producer:
        monkeypatch.setattr(producer, "_sleep", pauses.append)
        with pytest.raises(TargetUnavailable, match="does not take records: LimitExceededException"):
            deliver(producer, numbered(3))
    assert pauses == list(PAUSES_S)
    assert stream.records() == []


def test_a_record_that_is_too_large_is_poison_and_the_others_arrive(moto: MotoServer) -> None:
    stream = Stream(moto)
    largest = os.urandom((1 << 20) - 1)
    with stream.producer() as producer:
        producer.send([record(0, b"a"), record(1, largest), record(2, largest + b"x"), record(3, b"d")])
        with pytest.raises(PoisonRecords) as caught:
            producer.flush()
        deliver(producer, [record(4, b"e")])
    [(poison, reason)] = caught.value.records
    assert (poison.offset, reason) == (
        2,
        "it is too large for Kinesis: 1048577 bytes, and 1048576 are allowed",
    )
    assert stream.by_key() == {"k": [b"a", largest, b"d", b"e"]}


def opened(url: str, target: str, credentials: dict[str, str] | None) -> ReplicatorProducer:
    given = {"awsRegion": REGION, "awsEndpoint": url}
    policies = ReplicatorPolicies("r", given, {"orders": target}, credentials=credentials)
    return KinesisProvider().create_producer(SOURCE, policies)


def test_a_port_that_refuses_and_a_stream_that_is_not_there_are_said(moto: MotoServer) -> None:
    [port] = free_ports(1)
    with pytest.raises(TargetUnavailable, match="stream x of Kinesis does not answer"):
        deliver(opened(f"http://127.0.0.1:{port}", "x", KEYS), [record(0)])
    with pytest.raises(TargetUnavailable, match="ResourceNotFoundException"):
        deliver(opened(moto.url, "nowhere", KEYS), [record(0)])


def test_right_keys_let_records_in_and_wrong_ones_are_refused() -> None:
    with MotoServer() as moto:
        stream = Stream(moto)
        iam = moto.client("iam")
        iam.create_user(UserName="writer")
        made = iam.create_access_key(UserName="writer")["AccessKey"]
        policy = {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "kinesis:*", "Resource": "*"}],
        }
        iam.put_user_policy(UserName="writer", PolicyName="p", PolicyDocument=json.dumps(policy))
        moto.ask_for_credentials()
        right = {"accessKey": made["AccessKeyId"], "secretKey": made["SecretAccessKey"]}
        deliver(opened(moto.url, stream.name, right), [record(0)])
        for wrong in (KEYS, {**right, "secretKey": KEYS["secretKey"]}):
            with pytest.raises(CredentialsRefused, match="AWS refuses who writes to stream") as caught:
                deliver(opened(moto.url, stream.name, wrong), [record(1)])
            assert KEYS["secretKey"] not in str(caught.value)


def test_the_workers_own_credentials_are_for_namespaces_that_its_operator_names(
    moto: MotoServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream = Stream(moto)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "own")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    for rules in ("", "other/default public/other"):
        monkeypatch.setenv("AWS_REPLICATOR_NAMESPACES", rules)
        with pytest.raises(ReplicatorConfigError, match="AWS_REPLICATOR_NAMESPACES"):
            opened(moto.url, stream.name, None)
    for number, rule in enumerate(("public/default", "public/*", "*/*")):
        monkeypatch.setenv("AWS_REPLICATOR_NAMESPACES", f"a/b, {rule}")
        deliver(opened(moto.url, stream.name, None), [record(number, b"%d" % number)])
    assert stream.by_key() == {"k": [b"0", b"1", b"2"]}
    monkeypatch.setenv("AWS_PROFILE", "missing")  # nothing of the account matters where keys are given
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    deliver(opened(moto.url, stream.name, KEYS), [record(3, b"3")])
