"""The table of commands has every handler that there is."""

import pkgutil

from magnetar.protocols.pulsar import handlers
from magnetar.protocols.pulsar.commands import load_commands


def test_every_family_of_commands_is_in_the_table() -> None:
    written = {f"{handlers.__name__}.{found.name}" for found in pkgutil.iter_modules(handlers.__path__)}
    assert {command.handle.__module__ for command in load_commands().values()} == written
