"""Users of SCRAM: administrators create, change and list them (KIP-554).

A password does not leave this process: the client sends a salt, and the PBKDF2 of both.
"""

import hashlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from magnetar.client.kafka.cluster import Cluster, error_of, refusal
from magnetar.client.kafka.connection import ALTER_USER_SCRAM_CREDENTIALS, DESCRIBE_USER_SCRAM_CREDENTIALS
from magnetar.wire.kafka.error_codes import ErrorCode
from magnetar.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from magnetar.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
_SALT_BYTES: Final = 24
_NUMBERS: Final[Mapping[str, int]] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_ALGORITHMS: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
MECHANISMS: Final = tuple(_NUMBERS)


@dataclass(frozen=True, slots=True)
class ScramUser:
    """A user; `iterations` is by mechanism, and never empty."""

    name: str
    iterations: Mapping[str, int]


def scram_users(cluster: Cluster, names: Collection[str] = ()) -> list[ScramUser]:
    """The existing users of `names`, or all users, ordered by name.  Raises NotInTime, Refused."""
    wanted = [UserName(name) for name in sorted(set(names))]
    answer = cluster.ask_any_node(
        DESCRIBE_USER_SCRAM_CREDENTIALS, DescribeUserScramCredentialsRequest(wanted or None)
    )
    _check("listing users", answer.error_code, answer.error_message)
    by_number = {number: name for name, number in _NUMBERS.items()}
    found = []
    for row in answer.results:
        if error_of(row.error_code) is ErrorCode.RESOURCE_NOT_FOUND:
            continue
        _check(f"listing user {row.user!r}", row.error_code, row.error_message)
        iterations = {
            by_number.get(one.mechanism, f"mechanism {one.mechanism}"): one.iterations
            for one in row.credential_infos
        }
        found.append(ScramUser(row.user, iterations))
    return sorted(found, key=lambda one: one.name)


def set_password(
    cluster: Cluster, user: str, password: str, mechanisms: Iterable[str], iterations: int
) -> None:
    """Set the only password with which a user can log in by `mechanisms`.  Raises NotInTime, Refused."""
    upsertions = []
    for mechanism in mechanisms:
        salt = os.urandom(_SALT_BYTES)
        salted = hashlib.pbkdf2_hmac(_ALGORITHMS[mechanism], password.encode(), salt, iterations)
        upsertions.append(ScramCredentialUpsertion(user, _NUMBERS[mechanism], iterations, salt, salted))
    _alter(cluster, f"setting the password of user {user!r}", [], upsertions)


def delete_user(cluster: Cluster, user: str, mechanisms: Iterable[str]) -> None:
    """Remove these mechanisms, which the user must have.  Raises NotInTime, Refused."""
    deletions = [ScramCredentialDeletion(user, _NUMBERS[mechanism]) for mechanism in mechanisms]
    _alter(cluster, f"deleting user {user!r}", deletions, [])


def _alter(
    cluster: Cluster,
    what: str,
    deletions: list[ScramCredentialDeletion],
    upsertions: list[ScramCredentialUpsertion],
) -> None:
    request = AlterUserScramCredentialsRequest(deletions, upsertions)
    answer = cluster.ask_any_node(ALTER_USER_SCRAM_CREDENTIALS, request)
    for row in answer.results:
        _check(what, row.error_code, row.error_message)


def _check(what: str, code: int, detail: str | None) -> None:
    if code != ErrorCode.NONE:
        raise refusal(what, error_of(code), detail)
