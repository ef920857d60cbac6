"""Results as tables for people and as JSON for machines."""

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import starmap
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import disk, stats
from bench.function_measures import TABLE as FUNCTIONS
from bench.pulsar_server import PULSAR
from bench.replicator_measures import TABLE as REPLICATOR
from bench.runner import Result
from bench.security_measures import TABLE as SECURITY
from bench.servers import BASE, KAFKA, MAGNETAR, SINK
from bench.spark_measures import TABLE as SPARK
from bench.stats import Comparison, Figure, Summary, Verdict

SCHEMA = 1
NOISE_WARNING_SHARE = 0.10
WIDTH_WITH_EXTREMES = 120
TITLES = {  # by peer, or by table: the title, and the heading of what Magnetar is compared with
    KAFKA: ("Magnetar (journal synced) beside Apache Kafka (its defaults)", "Kafka"),
    PULSAR: ("Magnetar (journal synced) beside Apache Pulsar standalone (as it ships)", "Pulsar"),
    SPARK: ("Spark with Magnetar beside Spark with Kafka's connector and Apache Kafka", "connector"),
    SINK: ("Magnetar beside a broker that only answers, which shows the client's own ceiling", "ceiling"),
    SECURITY: ("Magnetar: with rules and quotas, beside none", "without"),
    REPLICATOR: ("From Magnetar to Apache Kafka: a replicator beside MirrorMaker 2", "MirrorMaker 2"),
    FUNCTIONS: ("Functions on Magnetar: its instances beside Pulsar's own runner", "Pulsar's runner"),
    "": ("Magnetar: from one protocol to the other, beside both ends in one", "one protocol"),
}
COLOURS = {
    Verdict.GOAL: "bold green",
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.UNDECIDED: "yellow",
    Verdict.NONE: "dim",
}


def compare_all(results: Sequence[Result]) -> list[Comparison]:
    return [result.compare(figure) for result in results for figure in result.measure.figures]


def show(results: Sequence[Result], console: Console) -> None:
    """A table for each peer that Magnetar was measured beside."""
    for name, (title, heading) in TITLES.items():
        chosen = [result for result in results if (result.measure.table or result.measure.peer) == name]
        if chosen and not any(BASE in result.samples for result in chosen):
            _show_table(chosen, title, heading, console)
    _show_beside_base(results, console)
    console.print(
        "Median of the runs, lowest to highest in brackets; ratio = Magnetar / the other.", style="dim"
    )
    for result in results:
        for server, failure in result.failures.items():
            console.print(f"[bold red]{result.measure.title}: {failure}" if failure else server, markup=True)
        for warning in noise(result):
            console.print(warning, style="yellow")
    console.print(closing_line(results), style="bold", highlight=False)


def _show_table(results: Sequence[Result], title: str, heading: str, console: Console) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    extremes = console.width >= WIDTH_WITH_EXTREMES
    for name in ("Magnetar", heading, "ratio", "bar", "goal", ""):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        for figure in result.measure.figures:
            row = result.compare(figure)
            if row.ours is None and row.theirs is None:
                continue
            table.add_row(
                f"{figure.label}, {figure.unit}",
                show_summary(row.ours, extremes=extremes),
                show_summary(row.theirs, extremes=extremes),
                "-" if row.ratio is None else f"{row.ratio:.2f}x",
                show_bar(figure),
                "-" if figure.goal is None else _bound(figure, figure.goal) + "x",
                _show_verdict(row),
            )
        table.add_section()
    console.print(table)


def _show_beside_base(results: Sequence[Result], console: Console) -> None:
    table = Table(title="Magnetar beside another Magnetar, pair by pair", title_justify="left")
    table.add_column("measure")
    for name in ("Magnetar", "base", "ratio of a pair", "95 of 100 within", "pairs", "within 3 %"):
        table.add_column(name, justify="right", no_wrap=True)
    for result in results:
        for figure in result.measure.figures:
            paired = result.beside_base(figure)
            if paired is None:
                continue
            ours, theirs = (
                show_summary(stats.summarize(result.values(name, figure.field)), extremes=False)
                for name in (MAGNETAR, BASE)
            )
            table.add_row(
                f"{figure.label}, {figure.unit}",
                ours,
                theirs,
                f"{paired.median:.3f}x",
                f"{paired.lowest:.3f}..{paired.highest:.3f}",
                str(paired.count),
                _coloured(stats.judge_change(figure, paired), ""),
            )
    if table.row_count:
        console.print(table)


def _show_verdict(row: Comparison) -> str:
    """An undecided one with the quotients that do not allow it."""
    if row.verdict is not Verdict.UNDECIDED or row.paired is None:
        return _coloured(row.verdict, "")
    return _coloured(row.verdict, f" {row.paired.lowest:.2f}..{row.paired.highest:.2f}")


def _coloured(verdict: Verdict, more: str) -> str:
    return f"[{COLOURS[verdict]}]{verdict.value}{more}"


def closing_line(results: Sequence[Result]) -> str:
    """How many bars are passed, failed and undecided; beside another Magnetar, how many figures hold."""
    changes = [
        stats.judge_change(figure, paired)
        for result in results
        for figure in result.measure.figures
        if (paired := result.beside_base(figure)) is not None
    ]
    counts = Counter(changes or [row.verdict for row in compare_all(results)])
    passed = counts[Verdict.PASS] + counts[Verdict.GOAL]
    what = f"no worse by {stats.WORSE_SHARE:.0%}" if changes else "bars"
    return f"{what}: {passed} passed, {counts[Verdict.FAIL]} failed, {counts[Verdict.UNDECIDED]} undecided"


def noise(result: Result) -> list[str]:
    """One sentence for each server whose runs shared the processors, or the disk, with other processes."""
    warnings = []
    for server, samples in result.samples.items():
        paces = zip(*(samples.get(f"disk_{name}", []) for name in disk.Pace._fields), strict=True)
        uneven = [pace for pace in starmap(disk.Pace, paces) if not pace.calm]
        if uneven:
            worst = max(uneven, key=lambda pace: pace.stalled_share)
            warnings.append(
                f"{result.measure.title}: before {len(uneven)} of {server}'s runs the disk stalled by itself,"
                f" up to {worst.stalled_share:.1%} of the time and {worst.worst_ms:.0f} ms at once"
            )
        shares = [
            value for name, values in samples.items() if name.endswith("others_cpu_share") for value in values
        ]
        summary = stats.summarize(shares)
        if summary is not None and summary.median > NOISE_WARNING_SHARE:
            warnings.append(
                f"{result.measure.title}: during {server}'s runs other processes and the kernel took"
                f" {summary.median:.0%} of the machine"
            )
    return warnings


def show_summary(summary: Summary | None, *, extremes: bool) -> str:
    if summary is None:
        return "-"
    if summary.count == 1 or not extremes:
        return show_number(summary.median)
    bounds = f"({show_number(summary.lowest)}..{show_number(summary.highest)})"
    return f"{show_number(summary.median)} [dim]{bounds}[/dim]"


def show_number(value: float) -> str:
    """Three significant digits; thousands apart."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) >= 0.001 else "0"


def show_bar(figure: Figure) -> str:
    if figure.bar is not None:
        return _bound(figure, figure.bar) + "x"
    return "-" if figure.limit is None else f"{_bound(figure, figure.limit)} {figure.unit}"


def _bound(figure: Figure, value: float) -> str:
    return f"{'>=' if figure.better is stats.Better.HIGHER else '<='} {value:g}"


def document(results: Sequence[Result], about: dict[str, object]) -> dict[str, object]:
    """Everything: rows as shown, and the raw samples of every measure."""
    return {
        "schema": SCHEMA,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        **about,
        "rows": [
            {"peer_name": result.measure.peer, **_row(result.compare(figure))}
            for result in results
            for figure in result.measure.figures
        ],
        "beside_base": [
            {
                "label": figure.label,
                "field": figure.field,
                "unit": figure.unit,
                **vars(paired),
                "verdict": stats.judge_change(figure, paired).value,
            }
            for result in results
            for figure in result.measure.figures
            if (paired := result.beside_base(figure)) is not None
        ],
        "measures": [
            {
                "name": result.measure.name,
                "title": result.measure.title,
                "samples": result.samples,
                "failures": result.failures,
                "noise": noise(result),
            }
            for result in results
        ],
    }


def write(path: Path, content: dict[str, object]) -> None:
    """Replaces the file whole: a run that is interrupted leaves the last complete one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(path.suffix + ".new")
    fresh.write_text(json.dumps(content, indent=1) + "\n")
    fresh.replace(path)


def _row(row: Comparison) -> dict[str, object]:
    figure = row.figure
    return {
        "label": figure.label,
        "field": figure.field,
        "unit": figure.unit,
        "better": figure.better.value,
        "magnetar": _summary(row.ours),
        "peer": _summary(row.theirs),
        "ratio": row.ratio,
        "paired": None if row.paired is None else vars(row.paired),
        "bar": figure.bar,
        "goal": figure.goal,
        "limit": figure.limit,
        "verdict": row.verdict.value,
    }


def _summary(summary: Summary | None) -> dict[str, float] | None:
    if summary is None:
        return None
    return {
        "median": summary.median,
        "lowest": summary.lowest,
        "highest": summary.highest,
        "runs": summary.count,
    }
