"""The table of APIs has every handler that there is."""

import pkgutil

from magnetar.protocols.kafka import handlers
from magnetar.protocols.kafka.apis import load_apis


def test_every_handler_is_in_the_table() -> None:
    written = {f"{handlers.__name__}.{found.name}" for found in pkgutil.iter_modules(handlers.__path__)}
    assert {api.handle.__module__ for api in load_apis().values()} == written
    assert list(load_apis()) == sorted(load_apis())
