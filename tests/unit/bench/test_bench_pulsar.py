"""What `pulsar-perf` prints is read back exactly; a comparison within Magnetar needs no peer."""

import io

import pytest
from rich.console import Console

from bench import pulsar_parse, report
from bench.parse import ParseError
from bench.pulsar_measures import PULSAR_MEASURES
from bench.runner import Result

PRODUCED = """\
2026-11-21T17:17:12,801+0000 [p-1] INFO  o.a.p.client.impl.PartitionedProducerImpl - [t] Created partitioned producer
2026-11-21T17:17:12,801+0000 [p-1] INFO  org.apache.pulsar.testclient.PerformanceProducer - Created 1 producers
2026-11-21T17:17:15,642+0000 [io] INFO  o.a.p.client.impl.ProducerImpl - [t-partition-1] [m-1] Closed Producer
2026-11-21T17:17:15,301+0000 [io] INFO  o.a.p.client.impl.ProducerImpl - [t-partition-0] [m-1] Closed Producer
2026-11-21T17:17:21,196+0000 [x] INFO  org.apache.pulsar.testclient.PerformanceProducer - Aggregated throughput stats \
--- 195000 records sent --- 19442.535 msg/s --- 151.895 Mbit/s
2026-11-21T17:17:21,520+0000 [x] INFO  org.apache.pulsar.testclient.PerformanceProducer - Aggregated latency stats \
--- Latency: mean: 445.493 ms - med: 489.321 - 95pct: 626.123 - 99pct: 713.915 - 99.9pct: 714.723 - Max: 714.875
"""
CONSUMED = """\
2026-11-21T17:17:26,726+0000 [main] INFO  PerformanceConsumer - Start receiving from 1 consumers per subscription
2026-11-21T17:17:28,978+0000 [x] INFO  PerformanceConsumer - Aggregated throughput stats \
--- 100000 records received --- 50000.000 msg/s --- 347.082 Mbit/s --- AckRate: 44425.99  msg/s --- ack failed 0 msg
2026-11-21T17:17:29,085+0000 [x] INFO  PerformanceConsumer - Aggregated latency stats \
--- Latency: mean: 14163.739 ms - med: 14178 - 95pct: 14294 - 99pct: 14359 - 99.9pct: 14401 - 99.99pct: 14437
"""


def test_a_produce_run_lasts_from_its_producers_to_the_end_of_the_last_one_reported() -> None:
    moved, latency = pulsar_parse.produced(PRODUCED, 1024)
    assert (moved.messages, moved.bytes, moved.seconds) == (195_000, 195_000 * 1024, 2.5)
    assert (latency.p50_ms, latency.p99_ms, latency.p999_ms) == (489.321, 713.915, 714.723)
    assert latency.records_per_second == 78_000


def test_a_consume_run_has_a_clock_of_its_own() -> None:
    moved, latency = pulsar_parse.consumed(CONSUMED, 100)
    assert (moved.messages, moved.seconds, latency.p95_ms) == (100_000, 2.0, 14294)
    assert pulsar_parse.is_receiving(CONSUMED)
    assert not pulsar_parse.is_receiving(PRODUCED)


@pytest.mark.parametrize(
    "output", ["", PRODUCED.replace("Created 1", "no"), PRODUCED.partition("Aggregated")[0]]
)
def test_a_run_without_a_result_is_an_error(output: str) -> None:
    with pytest.raises(ParseError, match="pulsar-perf produce ended without a result"):
        pulsar_parse.produced(output, 1024)


def test_nothing_received_is_an_error() -> None:
    with pytest.raises(ParseError, match="received nothing"):
        pulsar_parse.consumed(CONSUMED.replace("100000 records", "0 records"), 100)


def test_one_protocol_reading_the_other_is_compared_with_both_ends_in_one() -> None:
    (measure,) = [measure for measure in PULSAR_MEASURES if measure.name == "pulsar-cross"]
    samples = {"pulsar_to_kafka_first_messages_s": [40.0], "kafka_to_kafka_first_messages_s": [100.0]}
    result = Result(measure, {"magnetar": samples}, {})
    (figure,) = [each for each in measure.figures if each.field == "pulsar_to_kafka_first_messages_s"]
    row = result.compare(figure)
    assert (row.ratio, row.verdict.value) == (0.4, "fail")
    out = io.StringIO()
    report.show([result], Console(file=out, width=160))
    assert "one protocol" in out.getvalue()
    assert "Apache Kafka" not in out.getvalue()
