"""Bytes that no client may foresee: salts, nonces, keys.  Unlike ids (`base/randomness.py`) no seed gives them away."""

import secrets


def secret_bytes(count: int) -> bytes:
    return secrets.token_bytes(count)
