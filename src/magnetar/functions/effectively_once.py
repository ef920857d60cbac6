"""Outputs that are stored once, however often a message is delivered: EFFECTIVELY_ONCE.

Each input, or partition of one, has a producer of its own.  Its name is the same in every process of the function.  No
other function has this name, not even one that is made anew under the same function name.  An output's sequence id is
the place of its message in that input.  The broker deduplicates the output's topic.  So it takes an output for a
duplicate exactly if the output of its message, or of a later message, is stored.  What must stay true:

* an output is sent when all outputs before it are stored: the broker drops one that is overtaken
* the output's topic is not partitioned: a partition knows only what it has stored itself
"""

from collections.abc import Mapping
from typing import Any, Final

_BATCH_BITS: Final = 17
_ENTRY_BITS: Final = 20
_LEDGER_BITS: Final = 26


class Unnumbered(Exception):
    """The place of a message does not fit a sequence id; one sentence."""


class OutputsOnce:
    """See the module's text."""

    def __init__(
        self, client: Any, function: str, output: str, schema: Any, properties: dict[str, str]
    ) -> None:
        """`schema` is that of the outputs, for producers of bytes."""
        self._client = client
        self._function = function
        self._output = output
        self._schema = schema
        self._properties = properties
        self._producers: dict[str, Any] = {}

    def send(self, message: Any, content: bytes, settings: Mapping[str, Any]) -> None:
        """Return when the output of a message is stored.  Raises Unnumbered, and what the client raises."""
        number = sequence_id(message.message_id())
        topic = message.topic_name()
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(
                self._output,
                schema=self._schema,
                producer_name=f"{self._function} of {topic}",
                batching_enabled=False,  # each is waited for
                send_timeout_millis=0,  # a send that fails may be stored all the same, and is tried again
                properties=self._properties,
            )
        self._producers[topic].send(content, sequence_id=number, **settings)


def sequence_id(message_id: Any) -> int:
    """The place of a message in its topic as a number that grows with it.  Raises Unnumbered."""
    ledger, entry = message_id.ledger_id(), message_id.entry_id()
    batch = max(message_id.batch_index(), 0)
    if ledger >> _LEDGER_BITS or entry >> _ENTRY_BITS or batch >> _BATCH_BITS:
        raise Unnumbered(f"the message {ledger}:{entry}:{batch} has no number for EFFECTIVELY_ONCE")
    return int((ledger << _ENTRY_BITS | entry) << _BATCH_BITS | batch)
