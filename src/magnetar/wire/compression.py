"""The library behind every compression but zlib's: loaded when a server first looks behind a client's compression.

One that stores and forwards never does.
"""

from types import ModuleType


def cramjam() -> ModuleType:
    """The module: 15 ms and 1.5 MB at the first call."""
    import cramjam

    return cramjam
