"""What the load generators print is read back exactly, and a bad run is never taken for a good one."""

import json

import pytest

from bench import parse

PRODUCED = (
    "% Sending 1000000 messages of size 1024 bytes\n"
    "% 1017 backpressures for 1000000 produce calls: 0.102% backpressure rate\n"
    "% 1000000 messages produced (1024000000 bytes), 1000000 delivered (offset 231161, 0 failed) in 5200ms: "
    "192277 msgs/s and 196.89 MB/s, 1017 produce failures, 0 in queue, no compression\n"
)
CONSUMED = (
    "% 1000000 messages (1024000000 bytes) consumed in 819ms: 1219530 msgs/s (1248.80 MB/s)\n"
    "% Average application fetch latency: 1us\n"
)
LATENCY = (
    "200000 records sent, 19968.051118 records/sec (19.50 MB/sec), 120.89 ms avg latency, 879.00 ms max latency, "
    "1 ms 50th, 743 ms 95th, 840 ms 99th, 859 ms 99.9th.\n"
)
STEADY = (
    "100000 steady state records sent, 19896.538002 records/sec (19.43 MB/sec), 1.11 ms avg latency, "
    "10.00 ms max latency, 1 ms 50th, 3 ms 95th, 6 ms 99th, 9 ms 99.9th.\n"
)

SHARED = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms\n"
    "2026-11-27 04:00:00:123, 2026-11-27 04:00:05:623, 244.1406, 44.3892, 45454.5455, 250000, 5500\n"
)


def test_producer_summary() -> None:
    moved = parse.produced(PRODUCED, 1_000_000)
    assert moved.seconds == 5.2
    assert moved.messages_per_second == pytest.approx(192_307.7, abs=0.1)
    assert moved.mb_per_second == pytest.approx(196.92, abs=0.01)


def test_consumer_summary() -> None:
    moved = parse.consumed(CONSUMED, 1_000_000)
    assert (moved.messages, moved.bytes, moved.seconds) == (1_000_000, 1_024_000_000, 0.819)


@pytest.mark.parametrize(
    "output",
    [
        PRODUCED.replace("1000000 delivered", "999999 delivered"),
        PRODUCED.replace("0 failed", "3 failed"),
        "",
        "% Delivery failed: Broker transport failure\n",
    ],
)
def test_undelivered_messages_are_an_error(output: str) -> None:
    with pytest.raises(parse.ParseError):
        parse.produced(output, 1_000_000)


def test_short_read_is_an_error() -> None:
    said = '% Consume error for topic "t" [3] offset 0: Broker: Unknown topic or partition\n'
    with pytest.raises(
        parse.ParseError, match=r"read 999 of 1000000 messages: % Consume error .* Unknown topic"
    ):
        parse.consumed(said + CONSUMED.replace("% 1000000 messages", "% 999 messages"), 1_000_000)


def test_run_that_the_tool_rounds_to_nothing_still_divides() -> None:
    assert parse.consumed(CONSUMED.replace("819ms", "0ms"), 1_000_000).seconds == 0.001


def test_latency_is_of_the_steady_state() -> None:
    found = parse.latency(LATENCY + STEADY)
    assert (found.p50_ms, found.p95_ms, found.p99_ms, found.p999_ms) == (1, 3, 6, 9)
    assert found.records == 100_000


def test_latency_without_warm_up_is_of_the_whole_run() -> None:
    assert parse.latency(LATENCY).p99_ms == 840


def test_progress_lines_are_no_result() -> None:
    with pytest.raises(parse.ParseError, match="ended without a result"):
        parse.latency("99978 records sent, 19995.6 records/sec (19.53 MB/sec), 1.1 ms avg latency.\n")


def _state(messages: int, requests: int) -> str:
    brokers = {"bootstrap": {"req": {}}, "1": {"req": {"Produce": requests, "Metadata": 2}}}
    return json.dumps({"txmsgs": messages, "brokers": brokers})


def test_messages_per_request_come_from_the_last_whole_statistics() -> None:
    text = "\n".join([_state(0, 0), _state(600, 3), _state(1000, 4), '{"txmsgs": 12'])
    assert parse.messages_per_request(text, "Produce") == 250


@pytest.mark.parametrize("text", ["", "{", _state(0, 0)])
def test_messages_per_request_are_unknown_in_a_short_run(text: str) -> None:
    assert parse.messages_per_request(text, "Produce") is None


def test_share_group_summary() -> None:
    moved = parse.shared(SHARED, 249_900, 1024)
    assert (moved.messages, moved.bytes, moved.seconds) == (250_000, 256_000_000, 5.5)


@pytest.mark.parametrize("output", [SHARED, SHARED.splitlines()[0], ""])
def test_a_share_group_that_did_not_get_all_is_an_error(output: str) -> None:
    with pytest.raises(parse.ParseError):
        parse.shared(output, 250_001, 1024)
