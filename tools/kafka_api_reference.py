"""Write docs/reference/kafka-apis.md from the handlers that exist: `python tools/kafka_api_reference.py`.

What a handler serves is in its `VERSIONS` and in the text on top of its file; the page repeats both.  A test holds
the file to what this makes.
"""

import importlib
import inspect
from pathlib import Path
from typing import Any

from magnetar.protocols.kafka.apis import load_apis
from magnetar.protocols.kafka.registry import Api
from magnetar.wire.kafka.schema import APIS

FILE = Path(__file__).parent.parent / "docs" / "reference" / "kafka-apis.md"

INTRODUCTION = """\
# Kafka APIs

<!-- Made by tools/kafka_api_reference.py from src/magnetar/protocols/kafka/handlers: change those. -->

This page lists what the Kafka listener serves, by API key. ApiVersions tells clients the same, because both are made
from the handlers that exist. For any other request the server closes the connection and logs one line, as Apache
Kafka does. "Known" is the range of versions that Apache Kafka 4.3 has.
"""


def render() -> str:
    """The whole page."""
    served = load_apis()
    names = {api.key: api.name for api in APIS}
    known = {api.key: api.versions for api in APIS}
    rows = ["| key | API | served | known |", "|---:|---|---|---|"]
    rows += [
        f"| {key} | [{names[key]}](#{names[key].lower()}) | {_served(api)} | {known[key]} |"
        for key, api in served.items()
    ]
    sections = [f"## {names[key]}\n\n{_prose(api)}\n" for key, api in served.items()]
    missing = [f"{names[key]} ({key})" for key in sorted(names) if key not in served]
    assert not missing, f"the page has to tell of {', '.join(missing)}"
    return "\n".join([INTRODUCTION, "\n".join(rows) + "\n", *sections])


def _served(api: Api[Any]) -> str:
    low, high = api.min_version, api.max_version
    return f"{low}" if low == high else f"{low}-{high}"


def _prose(api: Api[Any]) -> str:
    """The handler's own text, its first word (the API's name) left out."""
    handler = importlib.import_module(f"magnetar.protocols.kafka.handlers.{api.name}")
    text = inspect.cleandoc(handler.__doc__ or "").partition(": ")[2]
    return text[:1].upper() + text[1:]


if __name__ == "__main__":
    FILE.parent.mkdir(parents=True, exist_ok=True)
    FILE.write_text(render())
