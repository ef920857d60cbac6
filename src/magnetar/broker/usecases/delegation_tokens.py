"""Use cases of delegation tokens: users create tokens for themselves and for others, renew, expire and list them
(KIP-48, KIP-373).

A caller that logged in with a token may use none of them, so a token cannot create tokens.  Nor may a caller that did
not log in: it would own what all such clients own.

A client that has a token's HMAC can log in as its owner.  So a caller that may see others' tokens can do what they can.
"""

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.config import LONG_MAX
from magnetar.broker.errors import PolicyViolation
from magnetar.broker.security.audit_line import Change
from magnetar.broker.security.authorizer import AccessControl
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.errors import (
    DelegationTokenExpired,
    DelegationTokenNotFound,
    DelegationTokenOwnerMismatch,
    DelegationTokenRequestNotAllowed,
    DelegationTokensDisabled,
    InvalidPrincipalType,
)
from magnetar.broker.security.model import (
    ANONYMOUS,
    USER,
    Caller,
    DelegationToken,
    Operation,
    Principal,
    delegation_token_resource,
    user_resource,
)

TOKENS_MAX: Final = 100_000  # about a kilobyte of memory each, without renewers
OWNER_TOKENS_MAX: Final = 1_000  # of one user: any user may make as many
RENEWERS_MAX: Final = 100
NAME_CHARS_MAX: Final = 1024
NAMES_BYTES_MAX: Final = 8192  # of all renewers of one token, in UTF-8
_AT_ONCE: Final = 64  # tokens that are looked at before others have their turn: each asks two rights


class DelegationTokenCases:
    def __init__(self, access: AccessControl, tokens: DelegationTokens, clock: Clock) -> None:
        self._access = access
        self._tokens = tokens
        self._clock = clock

    async def create(
        self, caller: Caller, owner: Principal | None, renewers: Sequence[Principal], lifetime_ms: int
    ) -> DelegationToken:
        """Create a token of `owner`'s; None is the caller.  It lives as long as the settings say, or for
        `lifetime_ms` if that is positive and less.

        Raises:
            DelegationTokenRequestNotAllowed, DelegationTokenNotAuthorized, InvalidPrincipalType,
            DelegationTokensDisabled
            PolicyViolation: there would be too many, or of too many and too long names.
            MetadataError: nothing can be stored now.
        """
        _check_caller(caller)
        owner = caller.principal if owner is None else owner
        if owner != caller.principal:
            self._access.require(caller, Operation.CREATE_TOKENS, user_resource(owner))
        if any(one.kind != USER for one in (owner, *renewers)):
            raise InvalidPrincipalType(f"Only principals of the type {USER} own and renew delegation tokens")
        self._check_enabled()
        settings = self._tokens.settings
        lifetime_ms = min(lifetime_ms if lifetime_ms > 0 else LONG_MAX, settings.lifetime_ms_max)
        async with self._tokens.lock:
            token_id = self._tokens.new_id()
            async with self._access.record(
                caller,
                Change.DELEGATION_TOKEN_CREATE,
                delegation_token_resource(token_id),
                owner=str(owner),
                renewers=[*map(str, renewers)],
                lifetime_ms=lifetime_ms,
            ):
                self._check_limits(owner, renewers)
                now_ms = self._clock.now_ms()
                max_ms = min(now_ms + lifetime_ms, LONG_MAX)
                expires_ms = min(now_ms + settings.period_ms, max_ms)
                named = [*dict.fromkeys(renewers)]
                return await self._tokens.add(
                    token_id, owner, caller.principal, named, now_ms, expires_ms, max_ms
                )

    def _check_limits(self, owner: Principal, renewers: Sequence[Principal]) -> None:
        if len(renewers) > RENEWERS_MAX:
            raise PolicyViolation(f"A delegation token has at most {RENEWERS_MAX} renewers")
        if any(len(one.name) > NAME_CHARS_MAX for one in (owner, *renewers)):
            raise PolicyViolation(f"The name of a user has at most {NAME_CHARS_MAX} characters")
        if sum(len(one.name.encode()) for one in renewers) > NAMES_BYTES_MAX:
            raise PolicyViolation(
                f"The names of a delegation token's renewers have {NAMES_BYTES_MAX} bytes at most"
            )
        if len(self._tokens) >= TOKENS_MAX or self._tokens.count_of(owner) >= OWNER_TOKENS_MAX:
            raise PolicyViolation(
                f"There are at most {TOKENS_MAX} delegation tokens, and {OWNER_TOKENS_MAX} of one user"
            )

    async def renew(self, caller: Caller, token_hmac: bytes, period_ms: int) -> int:
        """Set when a token expires: after the time in the settings, or after `period_ms` if that is positive and
        less, and at the end of its life at the latest.

        Raises:
            DelegationTokenRequestNotAllowed, DelegationTokensDisabled, DelegationTokenNotFound,
            DelegationTokenExpired, DelegationTokenOwnerMismatch
            MetadataError: nothing can be stored now.
        """
        async with self._tokens.lock:
            token = self._find(caller, token_hmac)
            self._check_good(token)
            self._check_renewer(caller, token)
            period_ms = min(period_ms if period_ms > 0 else LONG_MAX, self._tokens.settings.period_ms)
            return await self._end_later(caller, Change.DELEGATION_TOKEN_RENEW, token, period_ms)

    async def expire(self, caller: Caller, token_hmac: bytes, period_ms: int) -> int:
        """Set when a token expires: after `period_ms`, and at the end of its life at the latest.  If `period_ms` is
        negative, remove the token, even if it has expired.

        Raises:
            as `renew`
        """
        async with self._tokens.lock:
            token = self._find(caller, token_hmac)
            self._check_renewer(caller, token)
            if period_ms >= 0:
                self._check_good(token)
                return await self._end_later(caller, Change.DELEGATION_TOKEN_EXPIRE, token, period_ms)
            resource = delegation_token_resource(token.token_id)
            async with self._access.record(
                caller, Change.DELEGATION_TOKEN_EXPIRE, resource, owner=str(token.owner), at_once=True
            ):
                await self._tokens.remove([token.token_id])
            return self._clock.now_ms()

    async def _end_later(self, caller: Caller, change: Change, token: DelegationToken, period_ms: int) -> int:
        expires_ms = min(self._clock.now_ms() + period_ms, token.max_ms)
        resource = delegation_token_resource(token.token_id)
        async with self._access.record(
            caller, change, resource, owner=str(token.owner), expires_ms=expires_ms
        ):
            await self._tokens.change_expiry(token, expires_ms)
        return expires_ms

    async def describe(
        self, caller: Caller, owners: Collection[Principal] | None
    ) -> Sequence[DelegationToken]:
        """The tokens of these owners that the caller may see, and those that they may renew; None is all owners.

        Raises:
            DelegationTokenRequestNotAllowed, DelegationTokensDisabled
        """
        _check_caller(caller)
        self._check_enabled()
        wanted = None if owners is None else frozenset(owners)
        found = []
        for number, token in enumerate(self._tokens.all()):
            if number % _AT_ONCE == _AT_ONCE - 1:
                await asyncio.sleep(0)
            is_wanted = wanted is None or not wanted.isdisjoint((token.owner, *token.renewers))
            if is_wanted and self._may_see(caller, token):
                found.append(token)
        return found

    def _may_see(self, caller: Caller, token: DelegationToken) -> bool:
        permits = self._access.permits
        return (
            token.concerns(caller.principal)
            or permits(caller, Operation.DESCRIBE, delegation_token_resource(token.token_id))
            or permits(caller, Operation.DESCRIBE_TOKENS, user_resource(token.owner))
        )

    def _find(self, caller: Caller, token_hmac: bytes) -> DelegationToken:
        _check_caller(caller)
        self._check_enabled()
        token = self._tokens.find(token_hmac)
        if token is None:
            raise DelegationTokenNotFound("There is no delegation token of this HMAC")
        return token

    def _check_good(self, token: DelegationToken) -> None:
        if token.has_expired(self._clock.now_ms()):
            raise DelegationTokenExpired("The delegation token has expired")

    def _check_renewer(self, caller: Caller, token: DelegationToken) -> None:
        if not token.concerns(caller.principal):
            self._access.refused(caller, Operation.ALTER, delegation_token_resource(token.token_id))
            raise DelegationTokenOwnerMismatch("The delegation token is another user's")

    def _check_enabled(self) -> None:
        if not self._tokens.are_enabled:
            raise DelegationTokensDisabled(
                "There are no delegation tokens here: the server has no secret key"
            )


def _check_caller(caller: Caller) -> None:
    if caller.by_token or caller.principal == ANONYMOUS:
        raise DelegationTokenRequestNotAllowed(
            "Only clients that have said who they are, and not by a delegation token, may ask for delegation tokens"
        )
