"""The server's keys for the encryption of the secrets that it stores."""

from dataclasses import dataclass, field
from typing import Final

from magnetar.base.config import ConfigType
from magnetar.base.server_key import ServerKey

SECRETS_KEY: Final = "secrets.key"
OLD_SECRETS_KEY: Final = "secrets.old.key"
COMMAND: Final = "command:"

SEALING_KEYS: Final = (
    ServerKey(
        SECRETS_KEY,
        ConfigType.PASSWORD,
        "",
        "What seals the secrets that the server stores, such as those in configurations of pipelines: 32 bytes at"
        " least, as `file:///path`, `env:NAME`, `data:;base64,...`, or `command:` and a line for the shell that prints"
        " them. Keep it elsewhere than copies of the data directory.",
        default_words="the file `secrets.key` in the data directory, made at the first start",
    ),
    ServerKey(
        OLD_SECRETS_KEY,
        ConfigType.PASSWORD,
        "",
        "The previous key, in the same forms: at the start the server seals again with the new key what "
        "this one has sealed, and then no longer needs it.",
        default_words="there is none",
    ),
)


@dataclass(frozen=True, slots=True)
class SealingSettings:
    """The texts as they were set; empty for keys that were not set."""

    key: str = field(default="", repr=False)
    old_key: str = field(default="", repr=False)
