"""The files of `tests/authorization/`, in which a change of rights stands beside the change of code that makes it.

Each line has a verb, the rights that it asks for, and what it writes into the audit log.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = _ROOT / "tests" / "authorization"


def check(found: Sequence[str], file: Path) -> None:
    """Fail unless `file` has the lines `found`, in their order; the failure has the lines to write and to remove."""
    written = file.read_text().splitlines(keepends=True)
    name = file.relative_to(_ROOT) if file.is_relative_to(_ROOT) else file.name
    new = [line for line in found if line not in written]
    gone = [line for line in written if line not in found]
    changes = [f"remove from {name}:\n{''.join(gone)}"] if gone else []
    changes += [f"write into {name}, in order:\n{''.join(new)}"] if new else []
    assert not changes, "\n".join(changes)
    assert list(found) == written, f"{name} is not in order, or has a line twice"
