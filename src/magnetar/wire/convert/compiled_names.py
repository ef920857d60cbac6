"""How a property's name says what its header was (`naming.py`), compiled; `compiled_bytes.py` has the rules."""

from typing import Any, Final

import numpy as np

from magnetar.wire.compiled_bytes import compiled

KINDS: Final = np.frombuffer(b"textbase64null", np.uint8)
TEXT, BASE64, NULL, PLAIN = 0, 1, 2, 3
KIND_AT: Final = np.array([0, 4, 10], np.int64)
KIND_SIZE: Final = np.array([4, 6, 4], np.int64)


@compiled()
def kind_of(data: Any, position: int, end: int) -> Any:
    """(kind, size of the name in front) of a property's name; `PLAIN` when it ends like any other name."""
    for kind in range(3):
        size = KIND_SIZE[kind]
        at = end - size
        if at - 3 < position or data[at - 1] != 0x3B:
            continue
        same = True
        for index in range(size):
            if data[at + index] != KINDS[KIND_AT[kind] + index]:
                same = False
                break
        if not same:
            continue
        digit = at - 2
        while digit >= position and 0x30 <= data[digit] <= 0x39:
            digit -= 1
        digits = at - 2 - digit
        if digit >= position and data[digit] == 0x3B and 1 <= digits <= 9:
            return kind, digit - position
    return PLAIN, end - position
