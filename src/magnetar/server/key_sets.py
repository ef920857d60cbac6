"""JWK Sets that listeners verify tokens with: read beside the loop, kept, and read again.

A login looks at what is kept, and never waits.  A token of a key that is not there is refused, and has the set read
again, at most every ten seconds: any client can name a key.  What cannot be read is said once, and tried again; what
was read before goes on to hold.  A file that cannot be used ends the start; an endpoint that does not answer may be up
later, and until then no token is good.

Reading has a thread of its own, which a stop of the server does not wait for: an endpoint may take its time.
"""

import asyncio
import json
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from magnetar.base.clock import Clock, TimerHandle
from magnetar.base.errors import ConfigError
from magnetar.base.key_source import read_key
from magnetar.base.settings_oauth import KeySetSettings
from magnetar.base.tasks import Tasks
from magnetar.broker.security.key_sets import KeySet, parse_key_set
from magnetar.broker.security.tokens import TokenKey
from magnetar.server.certificates import client_context

log = logging.getLogger(__name__)

SET_BYTES_MAX: Final = 1 << 20
ANSWER_S_MAX: Final = 5.0  # for each part of an answer
READ_S_MAX: Final = 15.0  # for all of it
START_S_MAX: Final = 5.0  # how long a start waits for an endpoint
SOONER_EVERY_S: Final = 10.0
READ_EVERY_S_MIN: Final = 0.1
_DOUBLINGS_MAX: Final = 20
_FILE: Final = "file:"


class KeptKeySet:
    """One of them; `read` fetches its bytes, and may block."""

    def __init__(
        self,
        settings: KeySetSettings,
        clock: Clock,
        read: Callable[[KeySetSettings], bytes] | None = None,
        patience_s: float = READ_S_MAX,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._read = read or read_key_set
        self._keys = KeySet()
        self._failures = 0
        self._sooner_s = -SOONER_EVERY_S
        self._timer: TimerHandle | None = None
        self._tasks = Tasks(log)
        self._patience_s = patience_s
        self._reading: asyncio.Future[KeySet] | None = None

    def find(self, key_id: str | None, algorithm: str) -> TokenKey | None:
        """See `TokenKeys`."""
        key = self._keys.find(key_id, algorithm)
        now_s = self._clock.monotonic()
        if key is None and now_s - self._sooner_s >= SOONER_EVERY_S:
            self._sooner_s = now_s
            self._begin()
        return key

    async def start(self) -> None:
        """Read it for the first time.

        Raises:
            ConfigError: it is a file, which cannot be used, or the authorities of its endpoint cannot be.
        """
        if self._settings.trusted is not None:
            client_context(self._settings.trusted)
        if self._settings.url.startswith(_FILE):
            self._keys = await _beside(self._load)
            self._later(self._settings.refresh_s)
            return
        self._begin()
        await asyncio.wait(list(self._tasks), timeout=START_S_MAX)

    def close(self) -> None:
        """Read it no more."""
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.cancel()
        if self._reading is not None:
            self._reading.cancel()

    def _begin(self) -> None:
        if not len(self._tasks):
            self._tasks.spawn("keys of tokens", self._refresh())

    async def _refresh(self) -> None:
        settings = self._settings
        try:
            self._keys = await self._answer()
        except ConfigError as error:
            if not self._failures:
                before = (
                    "those that were read before go on to hold" if len(self._keys) else "no token is good"
                )
                log.warning("%s; until it can be read, %s", error, before)
            delay_s = min(settings.retry_s * 2 ** min(self._failures, _DOUBLINGS_MAX), settings.retry_s_max)
            self._failures += 1
        else:
            if self._failures:
                log.info("%s: the keys of tokens have been read", settings.setting)
            delay_s, self._failures = settings.refresh_s, 0
        self._later(delay_s)

    async def _answer(self) -> KeySet:
        """What the endpoint has; one that is still at an earlier answer is not asked again.

        Raises:
            ConfigError: it cannot be used, or does not come in `READ_S_MAX`.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = asyncio.ensure_future(_beside(self._load))
            reading.add_done_callback(_note)  # a stop does not wait for it
        await asyncio.wait([reading], timeout=self._patience_s)
        if not reading.done():
            settings = self._settings
            raise ConfigError(
                f"{settings.setting}: {shown(settings.url)} cannot be read: it takes longer than {self._patience_s:g} s"
            )
        self._reading = None
        return reading.result()

    def _later(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._clock.call_later(max(delay_s, READ_EVERY_S_MIN), self._begin)

    def _load(self) -> KeySet:
        data = self._read(self._settings)
        try:
            return parse_key_set(data)
        except ConfigError as error:
            raise ConfigError(f"{self._settings.setting}: {shown(self._settings.url)}: {error}") from None


def shown(url: str) -> str:
    """A URL without what may be a secret in it."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"[:200]


def read_key_set(settings: KeySetSettings) -> bytes:
    """The bytes of a set; blocks.

    Raises:
        ConfigError: it cannot be read.
    """
    if settings.url.startswith(_FILE):
        return read_key(settings.setting, settings.url, {})
    # Made for each reading: the file may have changed.
    context = None if settings.trusted is None else client_context(settings.trusted)
    try:
        document = _fetch(settings.url, context)
        return _fetch(_discovered(document, settings.issuer), context) if settings.issuer else document
    except urllib.error.HTTPError as error:
        error.close()
        reason = f"HTTP {error.code}"
    except urllib.error.URLError as error:
        reason = str(error.reason)
    except (OSError, HTTPException, ValueError) as error:
        reason = str(error) or type(error).__name__
    raise ConfigError(f"{settings.setting}: {shown(settings.url)} cannot be read: {reason[:200]}")


def _discovered(document: bytes, issuer: str) -> str:
    """Where the keys of an issuer are, by its discovery document.  Raises ValueError: that does not say so."""
    said = json.loads(document)
    if not isinstance(said, dict) or said.get("issuer") != issuer:
        raise ValueError("it is of another issuer")
    url = said.get("jwks_uri")
    # Keys that come over TLS from a provider do not come without it from elsewhere.
    schemes = ("https",) if issuer.startswith("https:") else ("https", "http")
    if not isinstance(url, str) or urlsplit(url).scheme not in schemes:
        raise ValueError(f"its jwks_uri is no URL: {' or '.join(schemes)}")
    return url


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Keys come from where the operator said, and from nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str, context: ssl.SSLContext | None) -> bytes:
    # As Java's, it does not take proxies from the environment.
    https = urllib.request.HTTPSHandler(context=context)
    opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}), https)
    over_s = time.monotonic() + READ_S_MAX
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see settings
    data = bytearray()
    with opener.open(request, timeout=ANSWER_S_MAX) as answer:
        while part := answer.read1(64 << 10):
            data += part
            if len(data) > SET_BYTES_MAX:
                raise ValueError(f"it has more than {SET_BYTES_MAX} bytes")
            if time.monotonic() > over_s:
                raise TimeoutError(f"it takes longer than {READ_S_MAX:g} s")
    return bytes(data)


def _note(reading: "asyncio.Future[KeySet]") -> None:
    if not reading.cancelled():
        reading.exception()


async def _beside(work: Callable[[], KeySet]) -> KeySet:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[KeySet] = loop.create_future()

    def report(result: KeySet | None, error: Exception | None) -> None:
        if done.done():
            return  # it is not waited for any more
        if result is not None:
            done.set_result(result)
        elif error is not None:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(report, result, failure)

    threading.Thread(target=run, name="magnetar-jwks", daemon=True).start()
    return await done
