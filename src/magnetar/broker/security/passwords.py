"""Passwords of Pulsar's clients, in the file that `htpasswd` writes: one `user:hash` in a line.

As Pulsar's broker, the server takes two forms of hashes: apr1 (`htpasswd -m`), and crypt (`htpasswd -d`), which looks
at eight bytes of a password.  With any other form the server refuses to start, because its users could not log in.

A look takes milliseconds, and as long for a user that does not exist.  As one form takes longer than the other, each
login is checked against all forms that the file has.  It takes longer for a longer password, so a password has
`PASSWORD_BYTES_MAX` at most.

Imports passlib, which takes a tenth of a second: only a server with passwords imports this.  It is libpass, the
maintained one: `crypt` is gone from Python's library.
"""

from typing import Any, Final

from passlib.hash import apr_md5_crypt, des_crypt

from magnetar.base.errors import ConfigError
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Credentials, Identity

PASSWORD_BYTES_MAX: Final = 256  # htpasswd takes 255

_FORMS: Final[tuple[Any, ...]] = (apr_md5_crypt, des_crypt)
_OF_NO_USER: Final = ("$apr1$magnetar$" + "." * 22, "ma" + "." * 11)  # by form, and of no password


def parse_passwords(data: bytes) -> dict[str, str]:
    """The hashes of a file, by user; of a user that it has twice, the last one.

    Raises:
        ConfigError: it is no such file, or has what is not taken.  The words have nothing of it.
    """
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError:
        raise ConfigError("this is no text in UTF-8") from None
    hashes: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        user, colon, known = line.strip().partition(":")
        if not colon or not user.strip() or not known:
            raise ConfigError(f"line {number} is not written user:hash, as htpasswd writes it")
        if not _is_taken(known):
            raise ConfigError(
                f"line {number} has a hash that is not taken: apr1 (htpasswd -m) and crypt (htpasswd -d) are"
            )
        hashes[user] = known
    if not hashes:
        raise ConfigError("there are no users in it")
    return hashes


class Passwords:
    """The method of clients that show `user:password`; the user is the role.

    `hashes` are looked at when a client logs in, and may be replaced.
    """

    def __init__(self, hashes: dict[str, str]) -> None:
        self.hashes = hashes

    @property
    def hashes(self) -> dict[str, str]:
        return self._hashes

    @hashes.setter
    def hashes(self, hashes: dict[str, str]) -> None:
        self._hashes = hashes
        had = {_form_of(known) for known in hashes.values()}
        self._stand_ins = [
            (form, other) for form, other in zip(_FORMS, _OF_NO_USER, strict=True) if form in had
        ]

    def identify(self, credentials: Credentials) -> Identity:
        """See `Method`."""
        user, colon, password = credentials.data.partition(b":")
        if not colon or not password or len(password) > PASSWORD_BYTES_MAX or b"\0" in password:
            raise AuthenticationFailed("it shows no user with a password")
        role = user.decode("utf-8", "replace")
        known = self._hashes.get(role, "")
        fits = False
        for form, other in self._stand_ins:
            is_of_this = form.identify(known)
            fits |= form.verify(password, known if is_of_this else other) and is_of_this
        if not fits:
            told = "there is no such user, or the password is another one"
            raise AuthenticationFailed(told).of(role if role in self._hashes else "")
        return Identity(role)


def _form_of(known: str) -> Any:
    return next((one for one in _FORMS if one.identify(known)), None)


def _is_taken(known: str) -> bool:
    form = _form_of(known)
    if form is None:
        return False
    try:
        return form.from_string(known).checksum is not None
    except ValueError:
        return False
