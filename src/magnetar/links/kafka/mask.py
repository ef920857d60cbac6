"""Functions of users that change records before they are copied: `--mask MODULE:FUNCTION`.

    def mask(record):                       # in redact.py: --mask redact:mask
        return record._replace(value=None if record.value is None else redacted(record.value))

The function gets a `Record` and returns one.  Its key, value and headers are copied; topic, partition, offset and time
stay as they were.  It may return None: then the record is left out, and readers continue behind its offset.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from magnetar.base.errors import ConfigError
from magnetar.links.errors import LinkError
from magnetar.links.kafka.record import Record

Mask: TypeAlias = Callable[[Record], Record | None]


def mask_named(name: str) -> Mask:
    """The function `MODULE:FUNCTION`; its module may be in the current folder.

    Raises:
        ConfigError: there is no such function.
    """
    module, _, function = name.partition(":")
    if not module or not function:
        raise ConfigError(f"a mask is named MODULE:FUNCTION, not {name[:200]!r}")
    if (folder := os.getcwd()) not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), function)
    except Exception as error:
        raise ConfigError(
            f"the mask {name[:200]} cannot be loaded: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise ConfigError(f"the mask {name[:200]} is no function")
    mask: Mask = found
    return mask


def masked(mask: Mask, records: Iterable[Record]) -> Iterator[Record]:
    """What the function makes of records.

    Raises:
        LinkError: it fails for a record, or returns no record.  The text does not have the record's content.
    """
    for one in records:
        where = f"offset {one.offset} of {one.topic} partition {one.partition}"
        try:
            found = mask(one)
        except Exception as error:
            raise LinkError(f"the mask fails at {where}: {type(error).__name__}") from error
        if found is None:
            continue
        if not isinstance(found, Record) or not _are_bytes(found):
            raise LinkError(f"the mask returns no record at {where}: key and value must be bytes or None")
        yield one._replace(key=found.key, value=found.value, headers=found.headers)


def _are_bytes(found: Record) -> bool:
    contents = [found.key, found.value, *(content for _, content in found.headers)]
    return all(isinstance(one, bytes | None) for one in contents)
