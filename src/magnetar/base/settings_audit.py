"""Settings of the audit log."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

AUDIT_LOG: Final = "audit.log"
STREAMS: Final = ("stdout", "stderr")

AUDIT_KEYS: Final = (
    ServerKey(
        AUDIT_LOG,
        ConfigType.STRING,
        "",
        "Where the server writes the audit log: a file (in the data directory, unless the path begins with"
        " /), `stdout` or `stderr`.",
        default_words="there is none",
    ),
    ServerKey(
        "audit.log.logins",
        ConfigType.STRING,
        "refused",
        "Which logins have a line in it: those that the server refuses, or all.",
        choices=("refused", "all"),
    ),
)


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """`target` is one of `STREAMS`, or the path of a file, which begins in the data directory."""

    target: str
    with_logins: bool


def audit(text: Callable[[str], str], notice: Callable[[Collection[str], str], None]) -> AuditSettings | None:
    """Read the keys with `text`; None when there is no audit log. `notice` gets the keys that have no effect."""
    target = text(AUDIT_LOG)
    if target:
        return AuditSettings(target, text("audit.log.logins") == "all")
    notice({"audit.log.logins"}, "audit.log is not set")
    return None
