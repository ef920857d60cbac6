"""Pipelines and functions in numbers: what they do, what a worker or an instance has reported of each."""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final

from magnetar.base.metrics import Labels, Metrics
from magnetar.broker.jobs.functions import Functions
from magnetar.broker.jobs.model import InstanceSays
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.policy.model import CLUSTER


def declare_pipeline_metrics(metrics: Metrics, pipelines: Pipelines) -> None:
    """Declare metrics that read `pipelines` when a client reads metrics."""

    def states() -> Iterator[tuple[Labels, float]]:
        counts = Counter(pipelines.state(one)[0].value for one in pipelines.all())
        return (((state,), count) for state, count in counts.items())

    def reported(name: str) -> Iterator[tuple[Labels, float]]:
        for one in pipelines.all():
            report = pipelines.report(one)
            value = report.status.get(name) if report is not None else None
            if isinstance(value, int | float):  # whatever a worker says
                yield (one.name,), value

    metrics.gauge("magnetar_pipelines", "Pipelines, by what they do.", states, ("state",))
    metrics.gauge(
        "magnetar_pipeline_lag",
        "Offsets between a pipeline's last batch and the ends of its topics.",
        lambda: reported("lag"),
        ("pipeline",),
    )
    metrics.gauge(
        "magnetar_pipeline_lag_seconds",
        "How long the next record for a pipeline has been in its topics, as far as its worker has seen them grow.",
        lambda: reported("lag_s"),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_rows_total",
        "Rows that a pipeline has read since it was last started.",
        lambda: reported("rows"),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_bytes_total",
        "About how many stored bytes a pipeline has read since the server started.",
        lambda: (((one.name,), pipelines.read_bytes.of(one.name)) for one in pipelines.all()),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_batches_total",
        "Batches of a pipeline since it was last started.",
        lambda: reported("batches"),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_errors_total",
        "Failures of a pipeline since its worker started.",
        lambda: reported("errors"),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_restarts_total",
        "How often a pipeline was started again since its worker started.",
        lambda: reported("restarts"),
        ("pipeline",),
    )


_OF_FUNCTION: Final = (  # the name in Pulsar's metrics, what an instance calls it, its text
    ("pulsar_function_received_total", "receivedTotal", "Messages that an instance of a function got."),
    (
        "pulsar_function_processed_successfully_total",
        "processedSuccessfullyTotal",
        "Messages that an instance of a function has processed.",
    ),
    (
        "pulsar_function_user_exceptions_total",
        "userExceptionsTotal",
        "Exceptions that a function has raised in an instance.",
    ),
    (
        "pulsar_function_system_exceptions_total",
        "systemExceptionsTotal",
        "Exceptions in an instance that are not of its function.",
    ),
)


def declare_function_metrics(metrics: Metrics, functions: Functions) -> None:
    """Declare metrics that read `functions` when a client reads metrics.  Counts begin with an instance's process, as
    in Pulsar.
    """
    labels = ("tenant", "namespace", "name", "instance_id", "cluster", "fqfn")

    def instances() -> Iterator[tuple[Labels, InstanceSays]]:
        for one in functions.all():
            for instance in one.instances:
                place = (one.tenant, one.namespace_name, one.name, str(instance), CLUSTER, one.full_name)
                yield place, functions.last_said(one, instance)

    def counted(key: str) -> Iterator[tuple[Labels, float]]:
        return ((place, said.numbers.get(key, 0)) for place, said in instances())

    for name, key, text in _OF_FUNCTION:
        metrics.total(name, text, partial(counted, key), labels)
    metrics.gauge(
        "pulsar_function_last_invocation",
        "When an instance of a function was last called, in milliseconds since 1970; 0: never.",
        lambda: ((place, said.last_invocation_ms) for place, said in instances()),
        labels,
    )
    metrics.total(
        "magnetar_function_restarts_total",
        "How often the process of an instance of a function was started again.",
        lambda: ((place, said.restarts) for place, said in instances()),
        labels,
    )
    metrics.gauge(
        "magnetar_function_running",
        "Whether an instance of a function runs (1) or not (0).",
        lambda: ((place, said.running) for place, said in instances()),
        labels,
    )
