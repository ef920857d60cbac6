"""Where each kind of pipeline is: ours in a table, those of other packages by an entry point.

Places are texts, so nothing is imported before there is a pipeline of the kind, and code that finds a kind imports
none.
"""

import importlib
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Final

from magnetar.base.config import closest
from magnetar.base.errors import ConfigError
from magnetar.pipelines.kinds.kind import Kind

GROUP: Final = "magnetar.pipelines"
KINDS: Final[Mapping[str, str]] = {
    "query": "magnetar.pipelines.kinds.query.kind:QueryKind",
    "replicator": "magnetar.pipelines.kinds.replicator.kind:ReplicatorKind",
    "source": "magnetar.pipelines.kinds.source.kind:SourceKind",
    "table": "magnetar.pipelines.kinds.table.kind:TableKind",
}


def find_kind(name: str) -> Kind:
    """The kind with that name; raises ConfigError if there is none, or if it cannot be imported."""
    places = {point.name: point.value for point in entry_points(group=GROUP)}
    place = KINDS.get(name) or places.get(name)
    if place is None:
        meant = closest(name, [*KINDS, *places])
        hint = f"did you mean {meant}?" if meant else f"there are {', '.join(sorted({*KINDS, *places}))}"
        raise ConfigError(f"there is no kind of pipeline {name[:100]!r}: {hint}")
    module, _, attribute = place.partition(":")
    try:
        kind: Kind = getattr(importlib.import_module(module), attribute)()
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"the kind {name} cannot be loaded: {error}") from error
    return kind
