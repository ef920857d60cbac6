"""A login that is refused leaves nothing in memory: a client without any right may try as often as it likes."""

import asyncio
from collections.abc import Callable

import pytest

from magnetar.base.settings_connections import ConnectionRules
from magnetar.broker.quotas.admission import Admission
from magnetar.broker.quotas.client_quotas import ClientQuotas
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import USER, Credentials, Principal
from magnetar.broker.security.passwords import Passwords, parse_passwords
from magnetar.broker.security.plain import PlainUsers
from magnetar.testing.clock import FakeClock
from magnetar.testing.metadata import MemoryMetadataStore
from tests.unit.circles import error_stays


def by_plain() -> None:
    PlainUsers({"alice": "secret"}).respond(b"\0alice\0wrong")


def by_password() -> None:
    Passwords(parse_passwords(b"bob:ESbinRWkipLcY\n")).identify(Credentials("basic", b"bob:wrong"))


def without_a_place() -> None:
    clock = FakeClock()
    admission = Admission(clock, ClientQuotas(MemoryMetadataStore(), clock))
    admission.govern(ConnectionRules(per_principal_max=0))
    admission.take_place_for(Principal(USER, "alice"))


@pytest.mark.parametrize("log_in", [by_plain, by_password, without_a_place], ids=lambda one: one.__name__)
def test_nothing_stays_of_a_refused_login(log_in: Callable[[], None]) -> None:
    """The variable that had the error was in its traceback, which has the connection, too."""

    async def work() -> None:
        log_in()

    assert not asyncio.run(error_stays(AuthenticationFailed, work))
