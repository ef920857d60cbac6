"""What `pulsar-perf` prints, read back.  No I/O.

2026-11-21T17:17:12,801+0000 [...] INFO  ...PerformanceProducer - Created 1 producers
2026-11-21T17:17:15,663+0000 [...] INFO  ...ProducerImpl - [...-partition-0] [name] Closed Producer
... Aggregated throughput stats --- 195344 records sent --- 19442.535 msg/s --- 151.895 Mbit/s
... Aggregated latency stats --- Latency: mean: 4.4 ms - med: 4.9 - 95pct: 6.2 - 99pct: 7.1 - 99.9pct: 7.2 - ...
"""

import re
from datetime import datetime

from bench.parse import Latency, ParseError, Transfer

_STAMP = r"(?P<stamp>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{3}[+-]\d{4})"
_CREATED = re.compile(_STAMP + r" .*- Created \d+ producers", re.MULTILINE)
_CLOSED = re.compile(_STAMP + r" .*\] Closed Producer\b", re.MULTILINE)
_THROUGHPUT = re.compile(
    r"Aggregated throughput stats --- (?P<count>\d+) records (?P<verb>sent|received) --- (?P<rate>[\d.]+) msg/s"
)
_LATENCY = re.compile(
    r"Aggregated latency stats --- Latency: mean: +[\d.]+ ms - med: +(?P<p50>[\d.]+) - 95pct: +(?P<p95>[\d.]+)"
    r" - 99pct: +(?P<p99>[\d.]+) - 99\.9pct: +(?P<p999>[\d.]+)"
)


def produced(output: str, size: int) -> tuple[Transfer, Latency]:
    """Messages of `size` bytes that were acknowledged, and the time from the first producer to the last one's end."""
    count = int(_last(_THROUGHPUT, output, "produce")["count"])
    began = datetime.fromisoformat(_last(_CREATED, output, "produce")["stamp"])
    ended = datetime.fromisoformat(_last(_CLOSED, output, "produce")["stamp"])
    seconds = max((ended - began).total_seconds(), 0.001)
    return Transfer(count, count * size, seconds), _latency(output, count, count / seconds, "produce")


def consumed(output: str, size: int) -> tuple[Transfer, Latency]:
    """Messages of `size` bytes that were received, by the tool's own clock."""
    found = _last(_THROUGHPUT, output, "consume")
    count, rate = int(found["count"]), float(found["rate"])
    if not count or not rate:
        raise ParseError("pulsar-perf consume received nothing")
    return Transfer(count, count * size, count / rate), _latency(output, count, rate, "consume")


def is_receiving(output: str) -> bool:
    return "Start receiving from" in output


def _latency(output: str, count: int, rate: float, verb: str) -> Latency:
    found = _last(_LATENCY, output, verb)
    percentiles = {name: float(found[name]) for name in ("p50", "p95", "p99", "p999")}
    return Latency(
        records=count,
        records_per_second=rate,
        p50_ms=percentiles["p50"],
        p95_ms=percentiles["p95"],
        p99_ms=percentiles["p99"],
        p999_ms=percentiles["p999"],
    )


def _last(pattern: re.Pattern[str], output: str, verb: str) -> re.Match[str]:
    matches = list(pattern.finditer(output))
    if not matches:
        raise ParseError(f"pulsar-perf {verb} ended without a result: {output.strip()[-300:] or 'no output'}")
    return matches[-1]
