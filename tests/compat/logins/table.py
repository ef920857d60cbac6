"""What clients see, as `expected.txt` says it: `client::mechanism::case | at Magnetar [| at Apache Kafka or Pulsar]`.

The last part is there where Apache's server does something else; `-` means that it does not have this.
"""

from pathlib import Path
from typing import Final, NamedTuple

FILE: Final = Path(__file__).parent / "expected.txt"
LET_IN: Final = "let in"
ABSENT: Final = "-"
KAFKA: Final = "4.3.1"  # which both were run against, to compare
PULSAR: Final = "4.0.8"


class Seen(NamedTuple):
    """What one client sees with one kind of credentials."""

    client: str
    mechanism: str
    case: str
    here: str
    at_apache: str

    @property
    def test_id(self) -> str:
        return f"{self.client}::{self.mechanism}::{self.case}"


def rows(text: str) -> list[Seen]:
    """Raises ValueError for a line of another form, or one that says again what another has said."""
    found: dict[str, Seen] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        test_id, *seen = (part.strip() for part in line.split("|"))
        names = test_id.split("::")
        if len(names) != 3 or len(seen) not in (1, 2) or not all(seen) or test_id in found:
            raise ValueError(f"not one login and what is seen: {line}")
        found[test_id] = Seen(names[0], names[1], names[2], seen[0], seen[-1])
    return list(found.values())


def expected(broker: str) -> dict[str, str]:
    """What is to be seen at `magnetar`, or at `kafka` or `pulsar`, by test ids."""
    all_rows = rows(FILE.read_text())
    if broker == "magnetar":
        return {one.test_id: one.here for one in all_rows}
    of_door = [one for one in all_rows if one.client.startswith("pulsar") == (broker == "pulsar")]
    return {one.test_id: one.at_apache for one in of_door if one.at_apache != ABSENT}
