"""Calls of providers and key stores, which may come from other packages.  Whatever they raise becomes one sentence for
the user, without a credential in it.  No call keeps the server waiting.
"""

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from magnetar.base.clock import Clock
from magnetar.base.errors import BrokerError, ConfigError
from magnetar.base.masking import scrubbed
from magnetar.base.tasks import Tasks
from magnetar.broker.jobs.errors import InvalidReplicator
from magnetar.broker.jobs.key_stores import KeyStores
from magnetar.replicators.key_store import KeyStore, KeyStoreError

log = logging.getLogger(__name__)

KEY_STORE_S_MAX: Final = 10.0
_SECRET_CHARS_MIN: Final = 4  # shorter ones are in every other word of a sentence
_T = TypeVar("_T")


async def refusing(call: Awaitable[_T], credentials: Mapping[str, Any] | None = None) -> _T:
    """What a call of a provider returns.

    Raises:
        InvalidReplicator: it raised.
    """
    try:
        return await call
    except ConfigError as error:
        secrets = frozenset(
            one
            for one in (credentials or {}).values()
            if isinstance(one, str) and len(one) >= _SECRET_CHARS_MIN
        )
        raise InvalidReplicator(scrubbed(str(error), secrets)) from None
    except Exception as error:  # noqa: BLE001  another package's code
        log.warning("the provider of a replicator has failed with %s", type(error).__name__)
        raise InvalidReplicator(f"the provider has failed with {type(error).__name__}") from None


async def answered(clock: Clock, tasks: Tasks, name: str, call: Coroutine[Any, Any, _T]) -> _T:
    """What a call of the key store `name` returns.

    Raises:
        MetadataError: the store is ours, and cannot be reached.
        InvalidReplicator: it raised, or has not answered in time.
    """
    asking = tasks.begin(f"ask the key store {name}", call)
    is_late = asyncio.Event()

    def give_up(asking: asyncio.Task[_T]) -> None:
        is_late.set()
        asking.cancel()

    timer = clock.call_later(KEY_STORE_S_MAX, give_up, asking)
    try:
        return await asking
    except KeyStoreError as error:
        raise InvalidReplicator(str(error)) from None
    except BrokerError:
        raise
    except asyncio.CancelledError:
        if not is_late.is_set():
            asking.cancel()  # the caller has gone
            raise
        raise InvalidReplicator(f"the key store {name} has not answered in {KEY_STORE_S_MAX:.0f} s") from None
    except Exception as error:  # noqa: BLE001  another package's code
        # Not what it says: it may say what it was given.
        log.warning("the key store %s has failed with %s", name, type(error).__name__)
        raise InvalidReplicator(f"the key store {name} has failed with {type(error).__name__}") from None
    finally:
        timer.cancel()
        del asking  # it has the error that was raised, whose traceback has this frame (`base/errors.kept`)


def found_store(stores: KeyStores, name: str) -> KeyStore:
    """A key store by its name.  Raises InvalidReplicator."""
    try:
        return stores.find(name)
    except KeyStoreError as error:
        raise InvalidReplicator(str(error)) from None
