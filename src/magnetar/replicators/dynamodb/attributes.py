"""Values of Python as attributes of DynamoDB, and how much of an item's limit they take.

A number that DynamoDB cannot keep exactly enough (more than 38 digits, beyond 9.99e125, not a number) is a text.  Times
and dates are texts in ISO 8601.
"""

import math
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any, Final

_DIGITS_MAX: Final = 38
_LARGEST: Final = Decimal("9.9999999999999999999999999999999999999E+125")
_SMALLEST: Final = Decimal("1E-130")
_EXACT: Final = Context(prec=1000)  # more digits than any number has that DynamoDB keeps: nothing is rounded
_OVERHEAD_BYTES: Final = 3  # of a list or a map; each element has one more

Attribute = dict[str, Any]


def attribute(value: Any) -> Attribute:
    """The attribute that holds a value in an item."""
    match value:
        case None:
            return {"NULL": True}
        case bool():
            return {"BOOL": value}
        case int() | float() | Decimal():
            return _number(value)
        case str():
            return {"S": value}
        case bytes():
            return {"B": value}
        case Mapping():
            return {"M": {str(name): attribute(one) for name, one in value.items()}}
        case list():
            return {"L": [attribute(one) for one in value]}
        case _:
            return {"S": value.isoformat() if hasattr(value, "isoformat") else str(value)}


def size_bytes(name: str, found: Attribute) -> int:
    """How many bytes of an item's limit an attribute takes, or a little less: a number counts as its least size."""
    return len(name.encode()) + _size(found)


def _number(value: int | float | Decimal) -> Attribute:
    if isinstance(value, float) and not math.isfinite(value):
        return {"S": str(value)}
    exact = _EXACT.normalize(Decimal(repr(value)) if isinstance(value, float) else Decimal(value))
    fits = exact.is_finite() and (exact == 0 or _SMALLEST <= exact.copy_abs() <= _LARGEST)
    if not fits or len(exact.as_tuple().digits) > _DIGITS_MAX:
        return {"S": str(value)}
    return {"N": str(exact)}


def _size(found: Attribute) -> int:
    [(kind, value)] = found.items()
    match kind:
        case "S":
            return len(value.encode())
        case "B":
            return len(value)
        case "L":
            return _OVERHEAD_BYTES + sum(1 + _size(one) for one in value)
        case "M":
            return _OVERHEAD_BYTES + sum(1 + size_bytes(name, one) for name, one in value.items())
        case _:
            return 1
