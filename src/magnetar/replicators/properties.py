"""What a provider says of its properties and credentials in a table, and one sentence for each mistake in them.

{name: (what a value is, as a text; whether it is good)}
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from magnetar.base.config import closest
from magnetar.replicators.errors import ReplicatorConfigError

SHOWN_CHARS: Final = 100

Property = tuple[str, Callable[[str], object]]
Properties = Mapping[str, Property]


def check_properties(type_name: str, given: Mapping[str, Any], table: Properties) -> None:
    """Raises ReplicatorConfigError: a property is not in the table, or its value is not good."""
    for name, value in given.items():
        if name not in table:
            text = str(name)[:SHOWN_CHARS]
            meant = closest(text, table)
            hint = f"did you mean {meant}?" if meant else f"there are {', '.join(table)}"
            raise ReplicatorConfigError(f"a replicator to {type_name} has no property {text!r}: {hint}")
        wanted, is_good = table[name]
        if not isinstance(value, str) or not is_good(value):
            raise ReplicatorConfigError(
                f"the property {name} must be {wanted}, not {str(value)[:SHOWN_CHARS]!r}"
            )


def require_property(type_name: str, given: Mapping[str, Any], name: str, example: str) -> None:
    """Raises ReplicatorConfigError: it is missing."""
    if name not in given:
        raise ReplicatorConfigError(f"a replicator to {type_name} needs the property {name}: {example}")


def check_credentials(type_name: str, given: Mapping[str, Any] | None, names: Sequence[str]) -> None:
    """Raises ReplicatorConfigError: one is not among the names, or is no text.  The error does not show a value."""
    for name, value in (given or {}).items():
        if name not in names or not isinstance(value, str) or not value:
            raise ReplicatorConfigError(
                f"credentials of a replicator to {type_name} are {', '.join(names)}, each a text, not"
                f" {str(name)[:SHOWN_CHARS]!r}"
            )
