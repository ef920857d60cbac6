"""Logins by SCRAM (RFC 5802), as many as a server takes; the load is ours, as no outside tool measures them.

Each login is a connection of its own: SaslHandshake v1, two SaslAuthenticate v0 (KIP-43, KIP-152), and its end.  A
user's password is hashed once, as clients do that keep the result: what is measured is the server.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import struct
import time

from bench.process import RunFailed

MECHANISM = "SCRAM-SHA-256"
HANDSHAKE, AUTHENTICATE = 17, 36
ANSWER_BYTES_MAX = 1 << 16


class Logins:
    """A user's logins at one server."""

    def __init__(self, host: str, port: int, user: str, password: str) -> None:
        self._host, self._port = host, port
        self._user, self._password = user, password
        self._salted: dict[tuple[bytes, int], bytes] = {}

    def run(self, *, count: int, at_once: int) -> float:
        """Seconds that `count` logins take, `at_once` of them at a time.  RunFailed when one fails."""
        began = time.monotonic()
        try:
            asyncio.run(self._all(count, at_once))
        except* (OSError, asyncio.IncompleteReadError, ValueError) as errors:
            raise RunFailed(f"a login failed: {errors.exceptions[0]}") from errors
        return time.monotonic() - began

    async def _all(self, count: int, at_once: int) -> None:
        left = iter(range(count))

        async def some() -> None:
            for _ in left:
                await self.login()

        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(some())

    async def login(self) -> None:
        """One connection that proves the password, has the server prove that it knows it, and ends."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            mechanism = MECHANISM.encode()
            await _call(reader, writer, HANDSHAKE, 1, struct.pack(">h", len(mechanism)) + mechanism)
            nonce = secrets.token_urlsafe(18)
            first = f"n={self._user},r={nonce}"
            challenge = await _authenticate(reader, writer, f"n,,{first}")
            given = dict(part.split("=", 1) for part in challenge.split(","))
            salted = self._salt(base64.b64decode(given["s"]), int(given["i"]))
            last = f"c=biws,r={given['r']}"
            signed = f"{first},{challenge},{last}".encode()
            key = _mac(salted, b"Client Key")
            proof = _xor(key, _mac(hashlib.sha256(key).digest(), signed))
            answer = await _authenticate(reader, writer, f"{last},p={base64.b64encode(proof).decode()}")
            if answer != f"v={base64.b64encode(_mac(_mac(salted, b'Server Key'), signed)).decode()}":
                raise ValueError("the server does not know the password")
        finally:
            writer.close()

    def _salt(self, salt: bytes, iterations: int) -> bytes:
        if (salt, iterations) not in self._salted:
            self._salted[salt, iterations] = hashlib.pbkdf2_hmac(
                "sha256", self._password.encode(), salt, iterations
            )
        return self._salted[salt, iterations]


async def _authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> str:
    """The server's text in answer to the client's."""
    message = text.encode()
    body = await _call(reader, writer, AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
    reason = struct.unpack_from(">h", body)[0]
    at = 2 + max(reason, 0)
    (size,) = struct.unpack_from(">i", body, at)
    return body[at + 4 : at + 4 + size].decode()


async def _call(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, key: int, version: int, body: bytes
) -> bytes:
    """What follows an answer's error code, which is to be none."""
    request = struct.pack(">hhih", key, version, 1, -1) + body
    writer.write(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 6 <= size <= ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes")
    answer = await reader.readexactly(size)
    (code,) = struct.unpack_from(">h", answer, 4)
    if code:
        raise ValueError(f"error {code} at request {key}")
    return answer[6:]


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
