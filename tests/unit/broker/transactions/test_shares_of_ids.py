"""Transactional ids of one principal do not take the places of all others'."""

from typing import Final

from magnetar.broker.security.model import Principal
from magnetar.broker.transactions.errors import TransactionError
from magnetar.broker.transactions.model import Producer
from magnetar.broker.transactions.settings import TransactionSettings
from magnetar.testing.transactions import TransactionDriver

E: Final = TransactionError
T0: Final = ("t", 0)
ANN, BOB, EVE = (Principal("User", name) for name in ("ann", "bob", "eve"))
EIGHT: Final = TransactionSettings(max_transactions_per_coordinator=8)


def listed(driver: TransactionDriver) -> list[str]:
    return sorted(name for name, _ in driver.coordinator.listed())


def opened(driver: TransactionDriver, name: str, owner: Principal) -> Producer:
    producer = driver.init(name, owner=owner)
    assert driver.add(name, producer, T0) is E.NONE
    return producer


def test_new_ids_of_a_principal_take_the_places_of_its_own() -> None:
    """Two thousand requests of one that may write by a prefix of ids, and the server had forgotten all other ids:
    their producers were told INVALID_PRODUCER_ID_MAPPING, and many end by that.
    """
    with TransactionDriver(EIGHT) as driver:
        bobs = driver.init("bob", owner=BOB)
        for number in range(20):
            driver.init(f"ann-{number}", owner=ANN)
        assert listed(driver) == ["ann-16", "ann-17", "ann-18", "ann-19", "bob"], "half of what others leave"
        assert driver.add("bob", bobs, T0) is E.NONE
        driver.init("ann-16", owner=ANN)  # it is used again, so that it is not the next to go
        driver.init("ann-20", owner=ANN)
        assert listed(driver) == ["ann-16", "ann-18", "ann-19", "ann-20", "bob"]


def test_open_transactions_of_one_principal_leave_places_to_others() -> None:
    """Transactions that are left open hold their ids' places for a quarter of an hour."""
    with TransactionDriver(EIGHT) as driver:
        anns = [opened(driver, f"ann-{number}", ANN) for number in range(4)]
        assert driver.ask_init("ann-4", owner=ANN).error is E.COORDINATOR_NOT_AVAILABLE
        opened(driver, "bob-0", BOB)
        opened(driver, "bob-1", BOB)
        assert driver.ask_init("bob-2", owner=BOB).error is E.COORDINATOR_NOT_AVAILABLE
        opened(driver, "eve", EVE)
        assert driver.init("ann-0", owner=ANN).producer_id == anns[0].producer_id, "what is there goes on"
        assert driver.end("ann-1", anns[1], commit=True) is E.NONE
        driver.init("ann-4", owner=ANN)
        assert "ann-1" not in listed(driver)


def test_after_a_restart_an_id_belongs_to_whom_it_is_given_next() -> None:
    with TransactionDriver(EIGHT) as driver:
        for number in range(4):
            driver.init(f"ann-{number}", owner=ANN)
        driver.restart()
        for number in range(4):
            driver.init(f"ann-{number}", owner=ANN)
        driver.init("ann-4", owner=ANN)
        assert listed(driver) == ["ann-1", "ann-2", "ann-3", "ann-4"]


def test_clients_without_a_login_have_all_places() -> None:
    with TransactionDriver(EIGHT) as driver:
        for number in range(9):
            driver.init(f"x-{number}")
        assert len(listed(driver)) == 8
        assert "x-0" not in listed(driver)
