"""What pulsar-admin is asked, and what it is to say: `pulsar-admin/steps.txt`, group by group.

    [topics]
    create persistent://acme/app/there              it succeeds
    stats persistent://acme/app/there => msgBacklog     and prints this
    offload -s 1M persistent://acme/app/there !! Offloading: not supported by Magnetar.     it is refused with this
    client produce -m one persistent://acme/app/there   pulsar-client's; a step without an outcome of its own

`{web}`, `{pulsar}` and `{broker}` are the server's addresses, `{files}` a folder with `schema.json` in it, `{ledger}`
and `{entry}` the id of a message in persistent://public/default/known, `{transaction}` the one that is open.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).parent / "pulsar-admin" / "steps.txt"
VERSION: Final = "4.0.8"
_NOISE: Final = re.compile(
    r"^\d{4}-\d\d-\d\dT.*(?:\n(?:[a-z]+\.|\tat |Caused by|\t\.\.\. ).*)*\n?", re.MULTILINE
)
_WRONG: Final = re.compile(r"^(?:Reason: |Usage: |Unmatched argument|Unknown option)", re.MULTILINE)


class Step(NamedTuple):
    """One command; `shown` is to be in what it prints, `refused` is the reason that it is refused with."""

    group: str
    command: str
    shown: str = ""
    refused: str = ""

    @property
    def is_of_admin(self) -> bool:
        return not self.command.startswith("client ")

    @property
    def test_id(self) -> str:
        return f"{self.group}::{self.command.split()[0]}"

    def line(self, values: Mapping[str, object]) -> str:
        """As pulsar-shell takes it."""
        command = f"admin {self.group} {self.command}" if self.is_of_admin else self.command
        for name, value in values.items():
            command = command.replace(f"{{{name}}}", str(value))
        return command

    def problem(self, output: str) -> str:
        """What is wrong with what it printed; nothing if all is well."""
        said = _NOISE.sub("", output)
        if self.refused:
            is_right = f"Reason: {self.refused}" in said.splitlines()
            return "" if is_right else f"not refused as it should be: {said}"
        if _WRONG.search(said):
            return said
        return "" if self.shown in said else f"{self.shown!r} is not in {said!r}"


def steps(text: str) -> list[Step]:
    """Raises ValueError for a step before any group."""
    found, group = [], ""
    for line in text.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            group = line[1:-1]
            continue
        if not group:
            raise ValueError(f"a step of no group: {line}")
        command, _, refused = line.partition(" !! ")
        command, _, shown = command.partition(" => ")
        found.append(Step(group, command, shown, refused))
    return found


def outcomes(of: Iterable[Step]) -> Iterator[tuple[str, str, str]]:
    """(group, command, the reason that it is refused with or nothing) of each command, in order.

    A command that works in one way and is refused in another works.
    """
    reasons: dict[tuple[str, str], str] = {}
    for step in of:
        if step.is_of_admin:
            key = (step.group, step.command.split()[0])
            reasons[key] = step.refused if reasons.get(key, step.refused) else ""
    return ((*key, reason) for key, reason in reasons.items())
