"""What the load generators print, read back.  No I/O.

`rdkafka_performance` (librdkafka's examples) ends with one line that starts with "% N messages"; its MB is 10^6
bytes, its clock runs from the first message handed over (producer) or received (consumer) to the last delivery
report or record.  `ProducerPerformance` (Kafka's tools) ends with a line of percentiles in whole milliseconds; with
`--warmup-records` there are two such lines, the last one without the warm-up.  `ShareConsumerPerformance` ends with a
line of seven columns, the last of which is the time from the subscription to the last record, in milliseconds.
"""

import json
import re
from dataclasses import dataclass

PRODUCED = re.compile(
    r"^% (?P<sent>\d+) messages produced \((?P<bytes>\d+) bytes\), (?P<delivered>\d+) delivered "
    r"\(offset -?\d+, (?P<failed>\d+) failed\) in (?P<ms>\d+)ms:",
    re.MULTILINE,
)
CONSUMED = re.compile(
    r"^% (?P<messages>\d+) messages \((?P<bytes>\d+) bytes\) consumed in (?P<ms>\d+)ms:", re.MULTILINE
)
LATENCY = re.compile(
    r"^(?P<records>\d+) (?:steady state )?records sent, (?P<rate>[\d.]+) records/sec .*?"
    r"(?P<p50>\d+) ms 50th, (?P<p95>\d+) ms 95th, (?P<p99>\d+) ms 99th, (?P<p999>\d+) ms 99\.9th",
    re.MULTILINE,
)

SHARED = re.compile(
    r"^[\d-]+ [\d:]+, [\d-]+ [\d:]+, [\d.]+, [\d.]+, [\d.]+, (?P<messages>\d+), (?P<ms>\d+)$", re.MULTILINE
)


class ParseError(ValueError):
    """A tool ended without the line that carries its result."""


@dataclass(frozen=True)
class Transfer:
    """What one client moved.  `seconds` is the client's own clock, without its start and its end."""

    messages: int
    bytes: int
    seconds: float

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds

    @property
    def mb_per_second(self) -> float:
        return self.bytes / self.seconds / 1e6


@dataclass(frozen=True)
class Latency:
    """Percentiles in milliseconds, from `send` to the acknowledgement, as the client saw them."""

    records: int
    records_per_second: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    p999_ms: float


def produced(output: str, messages: int) -> Transfer:
    """The summary of `rdkafka_performance -P`; every one of `messages` must have been delivered."""
    found = _last(PRODUCED, output, "rdkafka_performance -P")
    if int(found["failed"]) or int(found["delivered"]) != messages:
        raise ParseError(
            f"rdkafka_performance -P delivered {found['delivered']} of {messages} messages, {found['failed']} failed"
        )
    return _transfer(messages, found)


def consumed(output: str, messages: int) -> Transfer:
    """The summary of `rdkafka_performance -C`; it must have seen `messages`."""
    found = _last(CONSUMED, output, "rdkafka_performance -C")
    if int(found["messages"]) != messages:
        said = next((line for line in output.splitlines() if "rror" in line), "no error was shown")
        raise ParseError(f"rdkafka_performance -C read {found['messages']} of {messages} messages: {said}")
    return _transfer(messages, found)


def shared(output: str, messages: int, size: int) -> Transfer:
    """The summary of `ShareConsumerPerformance`; its consumers together must have got `messages` of `size` bytes.

    They may have got some more: each takes the rest of a batch that it has begun.
    """
    found = _last(SHARED, output, "ShareConsumerPerformance")
    got = int(found["messages"])
    if got < messages:
        raise ParseError(f"ShareConsumerPerformance got {got} of {messages} messages")
    return Transfer(got, got * size, max(int(found["ms"]), 1) / 1000)


def latency(output: str) -> Latency:
    """The last percentile line of `ProducerPerformance`: the steady state where there was a warm-up."""
    found = _last(LATENCY, output, "ProducerPerformance")
    return Latency(
        records=int(found["records"]),
        records_per_second=float(found["rate"]),
        p50_ms=float(found["p50"]),
        p95_ms=float(found["p95"]),
        p99_ms=float(found["p99"]),
        p999_ms=float(found["p999"]),
    )


def messages_per_request(statistics: str, request: str) -> float | None:
    """Messages in each `request` ("Produce" or "Fetch"), from librdkafka's statistics: one JSON object a line.

    The last line in which both are known wins: counts only grow.  None where the run was too short for any.
    """
    counter = "txmsgs" if request == "Produce" else "rxmsgs"
    for line in reversed(statistics.splitlines()):
        try:
            state = json.loads(line)
        except ValueError:  # the client ended in the middle of a line
            continue
        requests = sum(broker.get("req", {}).get(request, 0) for broker in state.get("brokers", {}).values())
        if requests and state.get(counter):
            return float(state[counter] / requests)
    return None


def _last(pattern: re.Pattern[str], output: str, tool: str) -> re.Match[str]:
    matches = list(pattern.finditer(output))
    if not matches:
        raise ParseError(f"{tool} ended without a result: {output.strip()[-300:] or 'no output'}")
    return matches[-1]


def _transfer(messages: int, found: re.Match[str]) -> Transfer:
    return Transfer(messages, int(found["bytes"]), max(int(found["ms"]), 1) / 1000)
