"""A topic's schema, in the form of the server's REST interface.

It is separate from the decoders, so that code that only passes on a schema does not import pyarrow.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TopicSchema:
    """`definition` of a key-value schema is `{"key":, "value":}`."""

    type: str
    definition: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
    version: int = -1
