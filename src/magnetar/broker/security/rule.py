"""A rule: a principal may, or may not, do something to what a target names, from one host or from any.

Both faces write this one kind.  The names in a target are full ones, as inside the broker, so that none can stand for
something of another tenant:

=================  ============  ==================================  ===========================================
type               pattern       name                                scope
=================  ============  ==================================  ===========================================
TOPIC              LITERAL       `persistent://tenant/namespace/t`
TOPIC              PREFIXED      what full names begin with
TOPIC              EVERY                                             `tenant/namespace`: all topics in it
SUBSCRIPTION       any           of groups, and of subscriptions
                                 of any topic
SUBSCRIPTION       LITERAL,      of a subscription                   `tenant/namespace`, or a topic's full name:
                   EVERY                                             subscriptions of topics there
CLUSTER            LITERAL       `kafka-cluster`
all others         any           as clients write it
=================  ============  ==================================  ===========================================

A topic is a whole one: its partitions follow it.  Stored, a rule is a JSON document at a path that follows from it, so
that one rule is never there twice.
"""

import hashlib
import json
from enum import Enum
from typing import Final, NamedTuple

from magnetar.broker.security.model import USER, Operation, ResourceType

EVERY_USER: Final = f"{USER}:*"
EVERY_HOST: Final = "*"
RULES_ROOT: Final = "/rules/"


class Pattern(Enum):
    LITERAL = "literal"
    PREFIXED = "prefixed"
    EVERY = "every"


class Target(NamedTuple):
    """See the module's text."""

    type: ResourceType
    pattern: Pattern
    name: str = ""
    scope: str = ""


class Rule(NamedTuple):
    """`principal` is `kind:name`, and `User:*` every user.  `is_role` says that Pulsar's side wrote it: then a star at
    an end of the name stands for anything, where the server is set up so.
    """

    principal: str
    operation: Operation
    target: Target
    allow: bool = True
    host: str = EVERY_HOST
    is_role: bool = False

    @property
    def path(self) -> str:
        """Where it is stored."""
        return RULES_ROOT + hashlib.sha256(self.encode()).hexdigest()[:40]

    def encode(self) -> bytes:
        document = {
            "v": 1,
            "principal": self.principal,
            "operation": self.operation.name,
            "type": self.target.type.name,
            "pattern": self.target.pattern.name,
            "name": self.target.name,
            "scope": self.target.scope,
            "allow": self.allow,
            "host": self.host,
            "role": self.is_role,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, stored: bytes) -> "Rule":
        document = json.loads(stored)
        target = Target(
            ResourceType[document["type"]],
            Pattern[document["pattern"]],
            document["name"],
            document["scope"],
        )
        return cls(
            document["principal"],
            Operation[document["operation"]],
            target,
            document["allow"],
            document["host"],
            document["role"],
        )


def of_user(name: str) -> str:
    """The principal that a role of Pulsar's is."""
    return f"{USER}:{name}"


def namespace_of(full_name: str) -> str:
    """`tenant/namespace` of a topic's full name."""
    return full_name.partition("://")[2].rpartition("/")[0]


def is_glob(role: str) -> bool:
    """Whether a role stands for more than itself where stars do: one star, at one of its ends."""
    return role.startswith("*") or role.endswith("*")


def fits_glob(role: str, name: str) -> bool:
    """Whether a role with a star at an end stands for this name; without one, only for itself."""
    if role.endswith("*"):
        return name.startswith(role[:-1])
    return name.endswith(role[1:]) if role.startswith("*") else name == role
