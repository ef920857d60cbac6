"""A transaction that has been asked to end."""

from collections.abc import Callable, Coroutine
from typing import Any

from magnetar.broker.transactions import rules
from magnetar.broker.transactions.model import TransactionState
from magnetar.testing.transactions import TransactionDriver

_COMMITS = (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)


def end_into(
    driver: TransactionDriver, state: TransactionState, end: Callable[[bool], Coroutine[Any, Any, object]]
) -> None:
    """Ask for the end that brings the id "x" to `state`; its partition t-0 is slow if it is to stay in the middle."""
    driver.partition("t", 0).held = state in rules.COMPLETED
    driver.start(end(state in _COMMITS))
    assert driver.state("x") is state
