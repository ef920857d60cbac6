"""Which of Kafka's settings one listener can have for itself: `listener.name.<listener>.<key>`."""

from typing import Final

from magnetar.base.settings_connections import OWN_NAMES as CONNECTION_NAMES
from magnetar.base.settings_oauth import PREFIX as OAUTH_PREFIX
from magnetar.base.settings_sasl import SASL_NAMES
from magnetar.base.settings_tls import KAFKA_NAMES

PREFIX: Final = "listener.name."
OAUTH_LISTENER: Final = ".oauthbearer"
OWN_NAMES: Final = KAFKA_NAMES | SASL_NAMES | CONNECTION_NAMES


def own_key(name: str) -> tuple[str, str] | None:
    """The listener and the key of which it has a value of its own; None if the name has another form.

    A listener may have dots in its name: what is not a key of `OWN_NAMES` is cut at the first of them.
    """
    if not name.startswith(PREFIX):
        return None
    words = name[len(PREFIX) :].split(".")
    cuts = [(".".join(words[:cut]), ".".join(words[cut:])) for cut in range(1, len(words))]
    if not cuts or not all(listener and key for listener, key in cuts):
        return None
    listener, key = next((cut for cut in cuts if cut[1] in OWN_NAMES), cuts[0])
    if key.startswith(OAUTH_PREFIX):
        listener = listener.removesuffix(OAUTH_LISTENER)  # Kafka takes these for the mechanism, too
    return listener.upper(), key
