"""What a declaration of a pipeline, and what its worker reports of it, may be: checked before it is kept."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from magnetar.base.errors import ConfigError
from magnetar.base.masking import HIDDEN
from magnetar.base.table_roots import TableRoots
from magnetar.broker.jobs.errors import InvalidPipeline
from magnetar.broker.jobs.model import Report, State

NAME_CHARS_MAX: Final = 100
CONFIG_BYTES_MAX: Final = 64 << 10
STATUS_BYTES_MAX: Final = 64 << 10
REASON_CHARS_MAX: Final = 4000

# A folder, a subscription, a Spark query and a part of a URL are named after it.
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# The worker's lock and logs lie where the folders of pipelines do.
_OF_THE_WORKER: Final = "worker."
_KIND: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_REPORTED: Final = frozenset(State) - {State.CREATED}
_WITH_PATHS: Final = frozenset(("source", "table"))


def check_name(name: str) -> None:
    """Raises InvalidPipeline if no pipeline can have this name."""
    if _NAME.fullmatch(name) is None or len(name) > NAME_CHARS_MAX or ".." in name:
        raise InvalidPipeline(
            f"the name {name[:NAME_CHARS_MAX]!r} of a pipeline must begin with a letter or digit and have at most"
            f" {NAME_CHARS_MAX} ASCII letters, digits and the characters _ . -"
        )
    if name.lower().startswith(_OF_THE_WORKER):
        raise InvalidPipeline(f"the name {name!r} of a pipeline may not begin with {_OF_THE_WORKER}")


def check_kind(kind: str) -> None:
    """Raises InvalidPipeline if no kind can have this name."""
    if _KIND.fullmatch(kind) is None:
        raise InvalidPipeline(f"there is no kind of pipeline {kind[:100]!r}")


def check_path(kind: str, config: Mapping[str, Any], roots: TableRoots) -> None:
    """Raises InvalidPipeline if a pipeline of this kind names a path outside of all `roots`."""
    path = config.get("path")
    if kind in _WITH_PATHS and isinstance(path, str):
        try:
            roots.resolve(path)
        except ConfigError as error:
            raise InvalidPipeline(str(error)) from None


def checked_size(config: Mapping[str, Any]) -> int:
    """How many bytes a configuration has.  Raises InvalidPipeline."""
    text = json.dumps(config)
    if json.dumps(HIDDEN) in text:
        raise InvalidPipeline(f"the config has {HIDDEN} in place of a secret: give the secret itself")
    if len(text) > CONFIG_BYTES_MAX:
        raise InvalidPipeline(f"a config of {len(text)} bytes is too large: {CONFIG_BYTES_MAX} are allowed")
    return len(text)


def checked_report(content: Any, now_ms: int) -> Report:
    """A report as the worker sends it.  Raises InvalidPipeline."""
    if not isinstance(content, dict):
        raise InvalidPipeline("the report of a pipeline must be a JSON object")
    state, run, status = content.get("state"), content.get("run"), content.get("status", {})
    if state not in _REPORTED or not isinstance(run, int) or not isinstance(status, dict):
        raise InvalidPipeline("the report of a pipeline has a state, a run and a status")
    if len(json.dumps(status)) > STATUS_BYTES_MAX:
        raise InvalidPipeline(f"the status of a pipeline may have {STATUS_BYTES_MAX} bytes")
    reason = str(content.get("reason") or "")[:REASON_CHARS_MAX]
    return Report(str(content.get("id")), run, State(state), reason, status, now_ms)
