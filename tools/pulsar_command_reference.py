"""Write docs/reference/pulsar-commands.md from the handlers that exist: `python tools/pulsar_command_reference.py`.

What is served is in each handler's `COMMANDS` and in the text on top of its file; the page repeats both.  A test holds
the file to what this makes.
"""

import importlib
import inspect
import pkgutil
from pathlib import Path

from magnetar.protocols.pulsar import handlers
from magnetar.wire.pulsar.commands import PROTOCOL_VERSION
from magnetar.wire.pulsar.PulsarApi_pb2 import BaseCommand

FILE = Path(__file__).parent.parent / "docs" / "reference" / "pulsar-commands.md"

INTRODUCTION = f"""\
# Pulsar commands

<!-- Made by tools/pulsar_command_reference.py from src/magnetar/protocols/pulsar/handlers: change those. -->

This page lists the commands of the binary protocol that the Pulsar listener serves, up to protocol version
{PROTOCOL_VERSION}. For any other command the server closes the connection and logs one line; clients do not send any.
"""


def render() -> str:
    """The whole page."""
    rows = ["| number | command | |", "|---:|---|---|"]
    sections = []
    by_kind = {}
    for found in pkgutil.iter_modules(handlers.__path__):
        module = importlib.import_module(f"{handlers.__name__}.{found.name}")
        commands = getattr(module, "COMMANDS", ())
        if commands:
            title = found.name.replace("_", " ")
            for command in commands:
                by_kind[command.kind] = title
            sections.append(f"## {title[:1].upper()}{title[1:]}\n\n{inspect.getdoc(module)}\n")
    rows += [
        f"| {kind} | {BaseCommand.Type.Name(kind)} | [{title}](#{title.replace(' ', '-')}) |"
        for kind, title in sorted(by_kind.items())
    ]
    return "\n".join([INTRODUCTION, "\n".join(rows) + "\n", *sections])


if __name__ == "__main__":
    FILE.write_text(render())
