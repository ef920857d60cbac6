"""`magnetar doctor`: checks the stored data of a stopped server, and repairs it."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from magnetar.base.findings import Finding

EXIT_DAMAGED: Final = 1


class Output(StrEnum):
    TEXT = "text"
    JSON = "json"


def doctor(
    data_dir: Annotated[
        Path,
        typer.Option("--data-dir", metavar="DIR", help="The data directory of a server that is stopped."),
    ],
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every stored record, however many there are.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Leave out what is damaged; files that are replaced move to DIR/damaged-<time>."
        ),
    ] = False,
    output: Annotated[Output, typer.Option("--output", "-o", help="text or json.")] = Output.TEXT,
) -> None:
    """Check what a stopped server has stored; exit code 1 if some of it is damaged.

    Nothing is changed without --repair.
    """
    from magnetar.server import doctor as server

    report = server.run(data_dir, deep=deep, repair=repair)
    if output is Output.JSON:
        print(
            json.dumps(
                {
                    "healthy": report.is_healthy,
                    "findings": _as_json(report.findings),
                    "repairs": _as_json(report.repairs),
                    "after": _as_json(report.after),
                },
                indent=2,
            )
        )
    else:
        _print(report.findings)
        if report.repairs:
            _print(report.repairs)
            print("after that:")
            _print(report.after)
        if report.is_healthy:
            print("healthy")
        elif repair:
            print("what is still damaged cannot be mended: reading it is an error, and it is never served")
        else:
            print(f"damaged: magnetar doctor --data-dir {data_dir} --repair goes on with what can be kept")
    raise typer.Exit(0 if report.is_healthy else EXIT_DAMAGED)


def _print(findings: list[Finding]) -> None:
    for finding in findings:
        print(f"{finding.weight.value:8}  {finding.area:9}  {finding.text}")


def _as_json(findings: list[Finding]) -> list[dict[str, Any]]:
    return [
        {
            "area": finding.area,
            "weight": finding.weight.value,
            "text": finding.text,
            "details": finding.details,
        }
        for finding in findings
    ]
