"""Quotas over the life of a server: a kill behind their change, and a stop while clients are made to wait."""

from contextlib import ExitStack

from magnetar.testing.server import MagnetarProcess
from magnetar.wire.kafka.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from magnetar.wire.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from magnetar.wire.kafka.messages.describe_client_quotas import DescribeClientQuotasRequest
from magnetar.wire.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.integration.server.wire import Wire, frame, record_batch

CLIENTS = 100
NAME = "a\0b\n\u2028"


def produce(size: int) -> bytes:
    data = [PartitionProduceData(0, record_batch([bytes(size)]))]
    return frame("produce", 9, ProduceRequest(None, 1, 30_000, [TopicProduceData("t", partition_data=data)]))


def test_a_kill_keeps_what_was_set_and_a_stop_waits_for_no_muted_client() -> None:
    with MagnetarProcess() as server:
        with Wire(server.ports[0]) as wire:
            made = CreateTopicsRequest([CreatableTopic("t", 1, 1)], 60_000)
            assert wire.ask("create_topics", 7, made).topics[0].error_code == 0
            limits = [
                EntryData([EntityData("client-id", name)], [OpData("producer_byte_rate", 1.0)])
                for name in ("test", NAME, "")
            ]
            answer = wire.ask("alter_client_quotas", 1, AlterClientQuotasRequest(limits))
            server.kill()
            assert [row.error_code for row in answer.entries] == [0, 0, 0]
        server.restart()
        with Wire(server.ports[0]) as wire:
            told = wire.ask("describe_client_quotas", 1, DescribeClientQuotasRequest([], False)).entries
            assert {one.entity[0].entity_name for one in told} == {"test", NAME, ""}
        with ExitStack() as stack:
            clients = [stack.enter_context(Wire(server.ports[0])) for _ in range(CLIENTS)]
            for one in clients:
                one.send(produce(1 << 10))
                assert one.answer("produce", 9).throttle_time_ms > 0
                one.send(produce(16 << 10) * 4)  # is not read
            server.terminate()
            assert all(one.is_closed() for one in clients)
        server.restart()
        assert "Traceback" not in server.log
