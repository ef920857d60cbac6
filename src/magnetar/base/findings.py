"""What a look at stored data has found: one sentence for people, and the same as values for programs."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Weight(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Nothing is wrong, and an operator may want to know it."""
    DAMAGE = "damage"
    """Stored data are not what was written, or some of them are gone."""
    REPAIRED = "repaired"
    """What was done about damage."""


@dataclass(frozen=True, slots=True)
class Finding:
    area: str
    """What it is about: journal, catalogue, segments, ..."""
    weight: Weight
    text: str
    details: dict[str, Any] = field(default_factory=dict)
    """JSON values."""
