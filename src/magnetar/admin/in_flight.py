"""The bytes of records that HTTP has at work, in requests and in answers, however slow their clients are."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from magnetar.admin.answers import Refused
from magnetar.base.error_codes import CROWDED
from magnetar.broker.security.model import Principal

APPENDED_BYTES_MAX: Final = 128 << 20  # of all requests at work
# Of those of one principal: slow bodies of one are not to keep out all others.
OF_ONE_BYTES_MAX: Final = 64 << 20


class AppendedBytes:
    """The bytes of all requests that append records to linked topics, by their principals."""

    def __init__(self) -> None:
        self._sizes: Counter[Principal] = Counter()

    @contextmanager
    def holding(self, owner: Principal, size: int) -> Iterator[None]:
        """Count `size` bytes meanwhile.

        Raises:
            Refused: there is no room for them now.
        """
        sizes = self._sizes
        if sizes.total() + size > APPENDED_BYTES_MAX or sizes[owner] + size > OF_ONE_BYTES_MAX:
            raise Refused(503, "too many record batches are at work already: send them again", CROWDED)
        sizes[owner] += size
        try:
            yield
        finally:
            sizes[owner] -= size
            if not sizes[owner]:
                del sizes[owner]


@dataclass(slots=True)
class SentBytes:
    """The bytes of all answers with records that are being sent."""

    total: int = 0
