"""Where the two protocols of one server are reached."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Doors:
    """Addresses of the same topics, by protocol: `host:port`, `pulsar://...` and `http://...`."""

    kafka: str
    pulsar: str
    http: str
