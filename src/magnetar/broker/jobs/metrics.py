"""Pipelines in numbers: how many do what, and what their worker has reported of each."""

from collections import Counter
from collections.abc import Iterator

from magnetar.base.metrics import Labels, Metrics
from magnetar.broker.jobs.pipelines import Pipelines


def declare_pipeline_metrics(metrics: Metrics, pipelines: Pipelines) -> None:
    """Declare metrics that read `pipelines` when a client reads metrics."""

    def states() -> Iterator[tuple[Labels, float]]:
        counts = Counter(pipelines.state(one)[0].value for one in pipelines.all())
        return (((state,), count) for state, count in counts.items())

    def reported(name: str) -> Iterator[tuple[Labels, float]]:
        for one in pipelines.all():
            report = pipelines.report(one)
            value = report.status.get(name) if report is not None else None
            if isinstance(value, int):  # whatever a worker says
                yield (one.name,), value

    metrics.gauge("magnetar_pipelines", "Pipelines, by what they do.", states, ("state",))
    metrics.gauge(
        "magnetar_pipeline_lag",
        "Offsets between a pipeline's last batch and the ends of its topics.",
        lambda: reported("lag"),
        ("pipeline",),
    )
    metrics.total(
        "magnetar_pipeline_rows_total",
        "Rows that a pipeline has read since its worker started.",
        lambda: reported("rows"),
        ("pipeline",),
    )
