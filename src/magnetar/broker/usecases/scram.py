"""Use cases of SCRAM credentials: administrators create, change, delete and list them (KIP-554)."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

from magnetar.broker.security.audit import Recording
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.model import CLUSTER, Caller, Operation, Resource, ResourceType
from magnetar.broker.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramCredential
from magnetar.broker.security.scram_credentials import ALGORITHMS, Key, ScramCredentials

SALT_BYTES_MAX: Final = 1024
USER_CHARS_MAX: Final = 1024


class ScramProblem(Enum):
    """Why a user's credentials are not changed, or not shown."""

    UNACCEPTABLE = "unacceptable"
    UNKNOWN_MECHANISM = "unknown mechanism"
    NOT_FOUND = "not found"
    TWICE = "twice"


class ScramUpsertion(NamedTuple):
    user: str
    mechanism: str  # empty for an unknown one
    iterations: int
    salt: bytes
    salted_password: bytes


class ScramResult(NamedTuple):
    """The result for one user; `problem` None: everything is done.  `credentials` are (mechanism, iterations)."""

    user: str
    problem: ScramProblem | None = None
    text: str = ""
    credentials: Sequence[tuple[str, int]] = ()


class ScramCases:
    def __init__(self, access: AccessControl, credentials: ScramCredentials) -> None:
        self._access = access
        self._credentials = credentials

    def describe(self, caller: Caller, users: Sequence[str] | None) -> list[ScramResult]:
        """Which mechanisms users have; None means all users.

        Raises:
            ClusterNotAuthorized
        """
        self._access.require(caller, Operation.DESCRIBE, CLUSTER)
        named = self._credentials.users() if users is None else users
        counted = dict.fromkeys(named, 0)
        for user in named:
            counted[user] += 1
        return [self._described(user, count) for user, count in counted.items()]

    def _described(self, user: str, count: int) -> ScramResult:
        if count > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            return ScramResult(user, ScramProblem.TWICE, text)
        found = [
            (mechanism, one.iterations)
            for mechanism in ALGORITHMS
            if (one := self._credentials.find(mechanism, user)) is not None
        ]
        if not found:
            text = f"Attempt to describe a user credential that does not exist: {user}"
            return ScramResult(user, ScramProblem.NOT_FOUND, text)
        return ScramResult(user, credentials=found)

    async def alter(
        self, caller: Caller, deletions: Sequence[Key], upsertions: Sequence[ScramUpsertion]
    ) -> list[ScramResult]:
        """Delete (mechanism, user), and put.  A user with a problem keeps the old credentials.

        Raises:
            ClusterNotAuthorized
            MetadataError: nothing can be stored now.
        """
        self._access.require(caller, Operation.ALTER, CLUSTER)
        async with self._credentials.lock:
            results: dict[str, ScramResult] = {}
            seen: set[Key] = set()
            for mechanism, user in deletions:
                _note(results, self._deletion_problem(mechanism, user), seen, (mechanism, user))
            for one in upsertions:
                _note(results, _upsertion_problem(one), seen, (one.mechanism, one.user))
            recordings = [
                self._recording(caller, Change.SCRAM_DELETE, results[user], mechanism=mechanism)
                for mechanism, user in deletions
            ]
            recordings += [
                self._recording(
                    caller,
                    Change.SCRAM_SET,
                    results[one.user],
                    mechanism=one.mechanism,
                    iterations=one.iterations,
                )
                for one in upsertions
            ]
            good = {user for user, result in results.items() if result.problem is None}
            async with self._access.record_each(recordings):
                await self._credentials.change(
                    [key for key in deletions if key[1] in good], dict(_made(upsertions, good))
                )
            return list(results.values())

    def _recording(self, caller: Caller, change: Change, result: ScramResult, **details: object) -> Recording:
        resource = Resource(ResourceType.USER, result.user)
        recording = self._access.record(caller, change, resource, **details)
        if result.problem is not None:
            recording.fails(result.problem.name)
        return recording

    def _deletion_problem(self, mechanism: str, user: str) -> ScramResult:
        if (result := _name_problem(mechanism, user)).problem is not None:
            return result
        if self._credentials.find(mechanism, user) is None:
            text = "Attempt to delete a user credential that does not exist"
            return ScramResult(user, ScramProblem.NOT_FOUND, text)
        return result


def _note(results: dict[str, ScramResult], result: ScramResult, seen: set[Key], key: Key) -> None:
    """The first problem of a user becomes its result."""
    if key in seen and result.problem is None:
        text = "A user credential cannot be altered twice in the same request"
        result = ScramResult(result.user, ScramProblem.TWICE, text)
    seen.add(key)
    if result.user not in results or results[result.user].problem is None:
        results[result.user] = result


def _name_problem(mechanism: str, user: str) -> ScramResult:
    if not user:
        return ScramResult(user, ScramProblem.UNACCEPTABLE, "Username must not be empty")
    if len(user) > USER_CHARS_MAX or "\0" in user:
        return ScramResult(user, ScramProblem.UNACCEPTABLE, "Username is too long, or has a NUL in it")
    if mechanism not in ALGORITHMS:
        return ScramResult(user, ScramProblem.UNKNOWN_MECHANISM, "Unknown SCRAM mechanism")
    return ScramResult(user)


def _upsertion_problem(one: ScramUpsertion) -> ScramResult:
    if (result := _name_problem(one.mechanism, one.user)).problem is not None:
        return result
    text = ""
    if one.iterations < ITERATIONS_MIN:
        text = "Too few iterations"
    elif one.iterations > ITERATIONS_MAX:
        text = "Too many iterations"
    elif not 0 < len(one.salt) <= SALT_BYTES_MAX or not 0 < len(one.salted_password) <= SALT_BYTES_MAX:
        text = "Salt and salted password must not be empty, nor longer than a kilobyte"
    return ScramResult(one.user, ScramProblem.UNACCEPTABLE, text) if text else result


def _made(upsertions: Sequence[ScramUpsertion], good: set[str]) -> Iterable[tuple[Key, ScramCredential]]:
    for one in upsertions:
        if one.user in good:
            algorithm = ALGORITHMS[one.mechanism]
            made = ScramCredential.of(algorithm, one.salt, one.iterations, one.salted_password)
            yield (one.mechanism, one.user), made
