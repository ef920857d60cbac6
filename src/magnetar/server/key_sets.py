"""The JWK Sets with which listeners verify tokens: a thread reads them, and reads them again at intervals.

A login uses the set in memory, and never waits.  If the key of a token is missing, the login fails and the set is
read again, but at most every ten seconds, because any client can name a key.  If a set cannot be read, the server
logs it once, keeps the old one, and tries again.  If a file cannot be used at the start, the server refuses to start.
An endpoint that does not answer then may be up later; until then no token is valid.

Each reading has its own thread, and a stop of the server does not wait for it, because an endpoint may be slow.
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
from magnetar.base.errors import ConfigError, kept
from magnetar.base.key_source import read_key
from magnetar.base.settings_oauth import KeySetSettings
from magnetar.base.tasks import Tasks
from magnetar.broker.security.key_sets import KeySet, parse_key_set
from magnetar.broker.security.tokens import TokenKey
from magnetar.server.certificates import client_context

log = logging.getLogger(__name__)

SET_BYTES_MAX: Final = 1 << 20
ANSWER_S_MAX: Final = 5.0  # the most seconds to wait for each part of an answer
READ_S_MAX: Final = 15.0  # the most for all of it
START_S_MAX: Final = 5.0  # how long a start waits for an endpoint
SOONER_EVERY_S: Final = 10.0
READ_EVERY_S_MIN: Final = 0.1
_DOUBLINGS_MAX: Final = 20
_FILE: Final = "file:"


class KeptKeySet:
    """One key set, kept in memory; `read` fetches its bytes, and may block."""

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
        """Read the set for the first time.

        Raises:
            ConfigError: the file of keys cannot be used, or the file of the authorities for its endpoint.
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
        """Stop reading the set."""
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
                log.warning("%s; until the server can read it, %s", error, before)
            delay_s = min(settings.retry_s * 2 ** min(self._failures, _DOUBLINGS_MAX), settings.retry_s_max)
            self._failures += 1
        else:
            if self._failures:
                log.info("%s: the server has read the keys of tokens", settings.setting)
            delay_s, self._failures = settings.refresh_s, 0
        self._later(delay_s)

    async def _answer(self) -> KeySet:
        """The endpoint's current set.  If an earlier request is still under way, waits for that and sends no other.

        Raises:
            ConfigError: the set cannot be used, or does not arrive in `READ_S_MAX` seconds.
        """
        reading = self._reading
        if reading is None:
            reading = self._reading = _beside(self._load)
            reading.add_done_callback(_note)  # marks its error as seen, because a stop does not wait for it
        await asyncio.wait([reading], timeout=self._patience_s)
        if not reading.done():
            settings = self._settings
            raise ConfigError(
                f"{settings.setting}: {shown(settings.url)} cannot be read: it takes longer than {self._patience_s:g} s"
            )
        self._reading = None
        try:
            return reading.result()
        finally:
            # It has the error that is raised, whose traceback has this frame (`base/errors.kept`).
            del reading

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
    """A URL without the parts that may have secrets."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"[:200]


def read_key_set(settings: KeySetSettings) -> bytes:
    """The bytes of a key set.  Blocks.

    Raises:
        ConfigError: the set cannot be read.
    """
    if settings.url.startswith(_FILE):
        return read_key(settings.setting, settings.url, {})
    # A new context for each reading: the file may have changed.
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
    """The URL of an issuer's keys, from its discovery document (OpenID Connect Discovery 1.0).  Raises ValueError if
    it has none.
    """
    said = json.loads(document)
    if not isinstance(said, dict) or said.get("issuer") != issuer:
        raise ValueError("it is of another issuer")
    url = said.get("jwks_uri")
    # If the provider uses TLS, its keys must come over TLS, too.
    schemes = ("https",) if issuer.startswith("https:") else ("https", "http")
    if not isinstance(url, str) or urlsplit(url).scheme not in schemes:
        raise ValueError(f"its jwks_uri is no URL: {' or '.join(schemes)}")
    return url


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, because keys must come only from the place that the operator named."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetch(url: str, context: ssl.SSLContext | None) -> bytes:
    # Like Java's clients, this one takes no proxies from the environment.
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


def _beside(work: Callable[[], KeySet]) -> "asyncio.Future[KeySet]":
    """What `work` returns or raises, on a thread of its own."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[KeySet] = loop.create_future()

    def report(result: KeySet | None, error: Exception | None) -> None:
        if done.done():
            return  # its caller no longer waits
        if result is not None:
            done.set_result(result)
        elif error is not None:
            done.set_exception(error)

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:  # noqa: BLE001 - the caller gets it
            failure = kept(error)
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(report, result, failure)

    threading.Thread(target=run, name="magnetar-jwks", daemon=True).start()
    return done
