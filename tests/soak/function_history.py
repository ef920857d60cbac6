"""What must hold of the outputs of a function, whatever was killed meanwhile.

With EFFECTIVELY_ONCE each message of the input has one output, and outputs are in the order of their messages.  With
ATLEAST_ONCE each message has an output, or several.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from tests.soak.mixed_history import Broken

SHOWN = 3


def output_of(message: bytes) -> bytes:
    """What the function makes of a message (`plain.py`)."""
    return b"<%s>" % message


def check_once(given: Sequence[bytes], made: Sequence[bytes]) -> None:
    """Compare the outputs with the messages of the input, both as their topics have them.  Raises Broken."""
    wanted = [output_of(message) for message in given]
    left, right = Counter(wanted), Counter(made)
    faults = [
        *_lost_and_made_up(left, right),
        *(f"the output {one!r} is there {right[one]} times" for one in right - left if one in left),
    ]
    if not faults and wanted != list(made):
        place = next(number for number, pair in enumerate(zip(wanted, made, strict=True)) if len({*pair}) > 1)
        faults = [f"the output {made[place]!r} stands where {wanted[place]!r} should be"]
    _require_none(faults)


def check_at_least_once(given: Sequence[bytes], made: Sequence[bytes]) -> None:
    """As `check_once`."""
    _require_none(_lost_and_made_up(Counter(map(output_of, given)), Counter(made)))


def _lost_and_made_up(wanted: Mapping[bytes, int], made: Mapping[bytes, int]) -> list[str]:
    return [
        *(f"the output {one!r} is lost" for one in wanted if one not in made),
        *(f"the output {one!r} has no message" for one in made if one not in wanted),
    ]


def _require_none(faults: Sequence[str]) -> None:
    if faults:
        raise Broken(f"{len(faults)} faults: {'; '.join(faults[:SHOWN])}")
