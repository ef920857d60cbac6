import pytest
from prometheus_client.parser import text_string_to_metric_families

from magnetar.base import metrics as module
from magnetar.base.exposition import render
from magnetar.base.metrics import Histogram, Metrics


def samples(metrics: Metrics) -> dict[str, float]:
    return {
        sample.name + "".join(f"[{value}]" for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(render(metrics).decode())
        for sample in family.samples
    }


def test_counters_go_out_under_their_own_names() -> None:
    metrics = Metrics()
    bytes_in = metrics.counter("kop_server_BYTES_IN", "Bytes produced.", ("topic", "partition"))
    requests = metrics.counter("magnetar_requests_total", "Requests.")
    bytes_in.labels("t", "0").value += 5
    bytes_in.labels("t", "0").value += 5
    bytes_in.labels("t", "1").value += 1
    requests.labels().value += 3
    assert samples(metrics) == {
        "kop_server_BYTES_IN[0][t]": 10,
        "kop_server_BYTES_IN[1][t]": 1,
        "magnetar_requests_total": 3,
    }
    bytes_in.remove("t", "0")
    bytes_in.remove("t", "0")
    assert "kop_server_BYTES_IN[0][t]" not in samples(metrics)


def test_a_histogram_counts_each_observation_in_every_bucket_above_it() -> None:
    metrics = Metrics()
    latency = metrics.histogram("latency_seconds", "Latency.", ("request",), bounds=(0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        latency.labels("Produce").observe(value)
    found = samples(metrics)
    assert found["latency_seconds_bucket[0.1][Produce]"] == 2
    assert found["latency_seconds_bucket[1.0][Produce]"] == 3
    assert found["latency_seconds_bucket[+Inf][Produce]"] == 4
    assert found["latency_seconds_count[Produce]"] == 4
    assert found["latency_seconds_sum[Produce]"] == pytest.approx(7.65)


def test_a_histogram_that_was_made_elsewhere_is_shown() -> None:
    metrics, times = Metrics(), Histogram((0.01,))
    metrics.histogram("write_seconds", "Writes.", bounds=times.bounds).adopt(times)
    times.observe(0.5)
    assert samples(metrics)["write_seconds_bucket[+Inf]"] == 1
    assert samples(metrics)["write_seconds_sum"] == 0.5


def test_a_gauge_is_read_when_a_client_asks() -> None:
    metrics = Metrics()
    open_connections = [1]
    metrics.gauge("connections", "Open.", lambda: [((), open_connections[0])])
    metrics.gauge("lag", "Lag.", lambda: [(("g",), 5)], ("group",))
    assert samples(metrics) == {"connections": 1, "lag[g]": 5}
    open_connections[0] = 2
    assert samples(metrics)["connections"] == 2


def test_label_values_of_clients_are_escaped() -> None:
    metrics = Metrics()
    metrics.counter("c", "C.", ("group",)).labels('a"\n\\').value = 1
    assert len(render(metrics).decode().strip().splitlines()) == 3
    assert list(samples(metrics).values()) == [1]


def test_clients_cannot_fill_memory_with_label_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHILDREN_MAX", 2)
    family = Metrics().counter("c", "C.", ("group",))
    children = [family.labels(str(i)) for i in range(4)]
    assert len(family.children) == 2
    assert children[2] is children[3]
    assert family.labels("0") is children[0]


def test_a_metric_is_declared_once() -> None:
    metrics = Metrics()
    metrics.counter("c", "C.")
    with pytest.raises(AssertionError, match="declared twice"):
        metrics.gauge("c", "C.", lambda: [])
