"""Producers whose epoch changes with each transaction (KIP-890): a new one begins at sequence 0."""

import pytest

from magnetar.broker.errors import OutOfOrderSequence
from magnetar.broker.log.producer_state import ProducerStates


def test_an_epoch_that_a_marker_gave_begins_at_zero() -> None:
    """What follows a first batch that was refused must not be stored before it."""
    states = ProducerStates()
    states.add(7, 0, 0, 0, 3, 0)
    states.marked(7, 1)
    with pytest.raises(OutOfOrderSequence):
        states.check(7, 1, 2, 1)
    assert states.check(7, 1, 0, 2) is None


def test_the_first_batch_of_a_transaction_with_an_epoch_of_its_own_begins_at_zero() -> None:
    states = ProducerStates()
    with pytest.raises(OutOfOrderSequence):
        states.check_first(7, 0, 5)
    states.check_first(7, 0, 0)
    states.add(7, 0, 0, 0, 3, 0)
    states.check_first(7, 0, 3)  # begun: `check` knows what comes next
    with pytest.raises(OutOfOrderSequence):
        states.check_first(7, 1, 3)
    states.marked(7, 1)
    with pytest.raises(OutOfOrderSequence):
        states.check_first(7, 1, 3)
    states.check_first(7, 1, 0)
