"""What is counted of conversions is shown."""

from magnetar.base.exposition import samples
from magnetar.base.metrics import Metrics
from magnetar.broker.interop.convert import Form
from magnetar.broker.interop.interop import Interop
from magnetar.broker.interop.metrics import declare_interop_metrics
from magnetar.broker.log.opening import Opener


def test_every_number_of_the_conversions_is_shown() -> None:
    interop = Interop(1 << 20, 5 << 20, Opener())
    counters = interop.counters
    for value, name in enumerate(counters.__slots__, 1):
        setattr(counters, name, value)
    interop._for_kafka.keep(("log", 0, b""), Form(memoryview(b"x" * 700)))
    metrics = Metrics()
    declare_interop_metrics(metrics, interop)
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for family in samples(metrics)
        for sample in family.samples
    }
    interop.close()
    assert shown == {
        ("magnetar_interop_entries_total", "kafka"): 1,
        ("magnetar_interop_entries_total", "pulsar"): 2,
        ("magnetar_interop_bytes_total", "kafka"): 3,
        ("magnetar_interop_bytes_total", "pulsar"): 4,
        ("magnetar_interop_undecodable_entries_total", "kafka"): 5,
        ("magnetar_interop_undecodable_entries_total", "pulsar"): 6,
        ("magnetar_interop_incomplete_chunked_messages_total",): 7,
        ("magnetar_interop_cache_bytes",): 1000,
    }
