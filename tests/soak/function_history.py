"""What must hold of the outputs of a function with EFFECTIVELY_ONCE, whatever was killed meanwhile.

Each message of the input has one output, and outputs are in the order of their messages.
"""

from collections import Counter
from collections.abc import Sequence

from tests.soak.mixed_history import Broken

SHOWN = 3


def output_of(message: bytes) -> bytes:
    """What the function makes of a message (`plain.py`)."""
    return b"<%s>" % message


def check(given: Sequence[bytes], made: Sequence[bytes]) -> None:
    """Compare the outputs with the messages of the input, both as their topics have them.  Raises Broken."""
    wanted = [output_of(message) for message in given]
    left, right = Counter(wanted), Counter(made)
    faults = [
        *(f"the output {one!r} is lost" for one in left - right if one not in right),
        *(f"the output {one!r} is there {right[one]} times" for one in right - left if one in left),
        *(f"the output {one!r} has no message" for one in right if one not in left),
    ]
    if not faults and wanted != list(made):
        place = next(number for number, pair in enumerate(zip(wanted, made, strict=True)) if len({*pair}) > 1)
        faults = [f"the output {made[place]!r} stands where {wanted[place]!r} should be"]
    if faults:
        raise Broken(f"{len(faults)} faults: {'; '.join(faults[:SHOWN])}")
