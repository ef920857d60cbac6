"""What a user configures for all replicators of a namespace to one type and region of targets.

`topic_names` is PIP-18's `topicNameMapping`: it says which topics of the namespace are replicated, and where to.  A key
that is a topic's name, without tenant and namespace, means that topic.  Any other key is a regular expression (RE2)
that must match the whole name; `{topic}` in its value stands for the name.  The key with a topic's name goes first;
then the first expression that matches, in the order of the mapping.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from magnetar.base.patterns import whole_matcher
from magnetar.replicators.errors import ReplicatorConfigError

TOPIC_PLACE: Final = "{topic}"
_DEAD_LETTERS: Final = "-DLQ"
_SERVERS: Final = "__"
_KEPT: Final = 4096  # expressions, which take long to parse: the server matches them with every new topic
_TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicatorPolicies:
    """See the module's text.  `properties` belong to the provider of the type.  `credentials` are those that the key
    store `auth_plugin` has for the target; None if the target needs none.  `replicator_id` is set when a producer is
    opened; an earlier replicator of the same topic had another one.
    """

    region: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    auth_plugin: str | None = None
    credentials: Mapping[str, Any] | None = field(default=None, repr=False)
    replicator_id: str = ""

    def target_of(self, local_name: str) -> str | None:
        """Where the records of a topic go; None if the topic is not replicated.

        Raises:
            ReplicatorConfigError: a key of the mapping is no regular expression.
        """
        own = self.topic_names.get(local_name)
        if own is not None:
            return own
        if local_name.endswith(_DEAD_LETTERS) or local_name.startswith(_SERVERS):
            return None
        for key, target in self.topic_names.items():
            if not is_topic_name(key) and matcher(key)(local_name):
                return target.replace(TOPIC_PLACE, local_name)
        return None


def is_topic_name(key: str) -> bool:
    """Whether a key of the mapping is the name of one topic."""
    return _TOPIC_NAME.fullmatch(key) is not None


@lru_cache(maxsize=_KEPT)
def matcher(expression: str) -> Callable[[str], bool]:
    """Whether a topic's whole name matches an expression.

    Raises:
        ReplicatorConfigError: it is none.
    """
    try:
        return whole_matcher(expression)
    except ValueError as error:
        raise ReplicatorConfigError(
            f"topicNameMapping: {expression[:100]!r} is neither a topic's name nor a regular expression: {error}"
        ) from None
