from collections.abc import Iterator

import pytest

from magnetar.testing.transactions import TransactionDriver


@pytest.fixture
def driver() -> Iterator[TransactionDriver]:
    with TransactionDriver() as running:
        yield running
