"""Tokens by which a pipeline's query acts for its owner: they live for a short time, and the server makes them for its
own worker.

    magnetar-pipeline.<ends, ms>.<MAC>.<name>

The MAC (HMAC-SHA256, hex) covers the end, the pipeline's id and name, and the epoch of the worker's lease.  So the
server keeps no token: after a restart it knows the tokens that it made before.  A token is valid until its end, as long
as its worker holds the lease and the pipeline has not been deleted.  After that it gives no rights.  The worker asks
for another one long before.

A token gives the rights that the owner has at the time of each request, and no rights of the worker.
"""

import hmac
from typing import Final

from magnetar.base.clock import Clock
from magnetar.base.job_token import PIPELINE, PREFIXES, TOKEN_BYTES_MAX
from magnetar.broker.jobs.model import OWNER_TOKEN_S, Pipeline
from magnetar.broker.security.errors import AuthenticationFailed

PREFIX: Final = PREFIXES[PIPELINE]
_DIGEST: Final = "sha256"
_PARTS: Final = 3


class OwnerTokens:
    """See the module's text.  `key` is secret.  If tokens have to outlive the process, so must the key."""

    def __init__(self, key: bytes, clock: Clock) -> None:
        self._key = key
        self._clock = clock

    def make(self, pipeline: Pipeline, epoch: int) -> str:
        """A token for the worker whose lease has this epoch."""
        ends_ms = self._clock.now_ms() + int(OWNER_TOKEN_S * 1000)
        return f"{PREFIX}{ends_ms}.{self._mac(pipeline, epoch, ends_ms)}.{pipeline.name}"

    @staticmethod
    def name_in(token: str) -> str:
        """The pipeline that a token names.

        Raises:
            AuthenticationFailed: it is no token.
        """
        parts = token.removeprefix(PREFIX).split(".", _PARTS - 1)
        if not token.startswith(PREFIX) or len(parts) != _PARTS or len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailed("it is no token of a pipeline")
        return parts[-1]

    def check(self, token: str, pipeline: Pipeline, epoch: int) -> float:
        """When a token that was made for this pipeline, and for the worker whose lease has this epoch, ends: of the
        monotonic clock.

        Raises:
            AuthenticationFailed
        """
        text, mac, _ = token.removeprefix(PREFIX).split(".", _PARTS - 1)
        if not (text.isascii() and text.isdecimal() and len(text) < 20 and mac.isascii()):
            raise AuthenticationFailed("it is no token of a pipeline")
        if not hmac.compare_digest(mac, self._mac(pipeline, epoch, int(text))):
            raise AuthenticationFailed("its token was not made for this pipeline and the worker that runs it")
        left_ms = int(text) - self._clock.now_ms()
        if left_ms <= 0:
            raise AuthenticationFailed("its token of a pipeline has ended")
        return self._clock.monotonic() + min(left_ms / 1000, OWNER_TOKEN_S)

    def _mac(self, pipeline: Pipeline, epoch: int, ends_ms: int) -> str:
        message = f"{ends_ms} {epoch} {pipeline.id} {pipeline.name}".encode()
        return hmac.digest(self._key, message, _DIGEST).hex()
