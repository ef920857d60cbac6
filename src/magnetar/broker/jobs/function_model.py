"""A function, as `functions.py` stores it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from magnetar.broker.security.model import Principal

VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Function:
    """A declared function: `config` in Pulsar's words, checked; the parts of its code are stored under `code`.  By the
    names of its secrets, `secrets` has the ids of their places.

    `owner` declared it or changed it last, and its instances act for the owner.  `run` grows with each change that
    concerns running instances, so that the server tells "still wanted" from "wanted again".  Instances with a number in
    `stopped` do not run.
    """

    tenant: str
    namespace: str
    name: str
    id: str
    config: Mapping[str, Any]
    file_name: str
    code: str
    code_parts: int
    owner: Principal
    run: int = 1
    stopped: frozenset[int] = frozenset()
    secrets: Mapping[str, str] = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.tenant}/{self.namespace}/{self.name}"

    @property
    def namespace_name(self) -> str:
        return f"{self.tenant}/{self.namespace}"

    @property
    def subscription(self) -> str:
        """The name of the subscription by which its instances read."""
        return str(self.config.get("subName") or self.full_name)

    @property
    def instances(self) -> range:
        return range(self.config["parallelism"])

    def encode(self) -> bytes:
        document = {
            "v": VERSION,
            "id": self.id,
            "config": self.config,
            "file_name": self.file_name,
            "code": self.code,
            "code_parts": self.code_parts,
            "owner": list(self.owner),
            "run": self.run,
            "stopped": sorted(self.stopped),
            "secrets": self.secrets,
        }
        return json.dumps(document).encode()

    @classmethod
    def decode(cls, full_name: str, stored: bytes) -> "Function":
        document = json.loads(stored)
        tenant, namespace, name = full_name.split("/", 2)
        return cls(
            tenant,
            namespace,
            name,
            document["id"],
            document["config"],
            document["file_name"],
            document["code"],
            document["code_parts"],
            Principal(*document["owner"]),
            document["run"],
            frozenset(document["stopped"]),
            document.get("secrets", {}),  # declared before there were secrets
        )


def new_function(
    tenant: str, namespace: str, name: str, config: Mapping[str, Any], file_name: str, owner: Principal
) -> Function:
    """A declaration that is not stored yet."""
    return Function(tenant, namespace, name, "", config, file_name, "", 0, owner)
