"""SCRAM's server side: RFC 5802's rules, RFC 7677's example, and a client of our own over both digests."""

import hashlib
import hmac
from base64 import b64decode, b64encode

import pytest

from magnetar.broker.security import scram
from magnetar.broker.security.errors import AuthenticationFailed
from magnetar.broker.security.model import Authenticated, Challenge, Principal
from magnetar.broker.security.scram import ScramBook, ScramCredential, ScramExchange

SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=user,r={NONCE}".encode()


def credential(algorithm: str = "sha256", password: bytes = b"pencil") -> ScramCredential:
    return ScramCredential.of(algorithm, SALT, 4096, hashlib.pbkdf2_hmac(algorithm, password, SALT, 4096))


def book(kept: ScramCredential, *, by_token: bool = False) -> ScramBook:
    """Any name logs in; as a token, it stands for the user `owner of NAME`."""

    def user_of(name: str) -> str:
        return f"owner of {name}" if by_token else name

    return ScramBook(
        lambda _: kept,
        user_of,
        lambda name, data: Authenticated(Principal("User", user_of(name)), data, by_token=by_token),
    )


def exchange(algorithm: str = "sha256") -> ScramExchange:
    users, tokens = credential(algorithm), credential(algorithm, b"hmac")
    return ScramExchange(algorithm, book(users), book(tokens, by_token=True))


def final(
    challenge: Challenge, first: bytes, password: bytes, algorithm: str = "sha256", header: bytes = b"n,,"
) -> bytes:
    """What a client answers."""
    said = challenge.data.decode()
    nonce, salt, iterations = (part.split("=", 1)[1] for part in said.split(","))
    salted = hashlib.pbkdf2_hmac(algorithm, password, b64decode(salt), int(iterations))
    key = hmac.digest(salted, b"Client Key", algorithm)
    without = f"c={b64encode(header).decode()},r={nonce}"
    signed = f"{first.decode().removeprefix(header.decode())},{said},{without}".encode()
    signature = hmac.digest(hashlib.new(algorithm, key).digest(), signed, algorithm)
    proof = b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True))).decode()
    return f"{without},p={proof}".encode()


def test_the_example_of_rfc_7677(monkeypatch: pytest.MonkeyPatch) -> None:
    one = exchange()
    one._server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    nonce = f"{NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    assert one.respond(FIRST) == Challenge(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    last = f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    done = one.respond(last)
    assert done == Authenticated(Principal("User", "user"), b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_the_example_of_rfc_5802_where_it_is_the_same_but_for_the_digest() -> None:
    salt = b64decode("QSXCR+Q6sek8bf92")
    salted = hashlib.pbkdf2_hmac("sha1", b"pencil", salt, 4096)
    kept = book(ScramCredential.of("sha1", salt, 4096, salted))
    one = ScramExchange("sha1", kept, kept)
    one._server_nonce = "3rfcNHYJY1ZVvWVs7j"
    nonce = "fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"
    one.respond(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL")
    done = one.respond(f"c=biws,r={nonce},p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=".encode())
    assert isinstance(done, Authenticated)
    assert done.data == b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ="


@pytest.mark.parametrize("algorithm", ["sha256", "sha512"])
@pytest.mark.parametrize(
    ("first", "header", "user"),
    [
        (b"n,,n=alice,r=abc", b"n,,", "alice"),
        (b"y,,n=alice,r=abc", b"y,,", "alice"),
        (b"n,a=alice,n=alice,r=abc", b"n,a=alice,", "alice"),
        ("n,,n=Älis,r=abc".encode(), b"n,,", "Älis"),
        (b"n,,n=a=2Cb=3Dc,r=abc", b"n,,", "a,b=c"),
        (b"n,,n=alice,r=abc,x=y", b"n,,", "alice"),
        (b"n,,n=alice,r=abc,tokenauth=false", b"n,,", "alice"),
        (b"n,,n=alice,r=abc,tokenauth=true,tokenauth=false", b"n,,", "alice"),
        (b"n,,n=alice,r=abc,tokenauth=", b"n,,", "alice"),
    ],
)
def test_a_login(algorithm: str, first: bytes, header: bytes, user: str) -> None:
    one = exchange(algorithm)
    challenge = one.respond(first)
    assert isinstance(challenge, Challenge)
    done = one.respond(final(challenge, first, b"pencil", algorithm, header))
    assert isinstance(done, Authenticated)
    assert done.principal == Principal("User", user)
    assert not done.by_token


@pytest.mark.parametrize("extensions", [b",tokenauth=true", b",tokenauth=TRUE", b",x=y,tokenauth=true,z=1"])
def test_a_login_by_a_token_and_its_password_only(extensions: bytes) -> None:
    first = b"n,,n=id,r=abc" + extensions
    for password, is_good in ((b"hmac", True), (b"pencil", False)):
        one = exchange()
        challenge = one.respond(first)
        assert isinstance(challenge, Challenge)
        last = final(challenge, first, password)
        if is_good:
            done = one.respond(last)
            assert isinstance(done, Authenticated)
            assert (done.principal, done.by_token) == (Principal("User", "owner of id"), True)
        else:
            with pytest.raises(AuthenticationFailed) as said:
                one.respond(last)
            assert said.value.user == "owner of id"


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"\xff",
        b"n,,",
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=x,n=user,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2cer,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,a=other,n=user,r=abc",
        b"n,,n=user,r=" + b"a" * scram.MESSAGE_BYTES_MAX,
    ],
)
def test_a_first_message_that_is_none(first: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        exchange().respond(first)


def test_a_last_message_that_is_none() -> None:
    def after(change: tuple[bytes, bytes]) -> None:
        one = exchange()
        challenge = one.respond(FIRST)
        assert isinstance(challenge, Challenge)
        good = final(challenge, FIRST, b"pencil")
        assert change[0] in good
        one.respond(good.replace(change[0], change[1]))

    for change in [
        (b"c=biws", b"c=eSws"),
        (b"c=biws", b"c=b"),
        (NONCE.encode(), b"other"),
        (b",p=", b",p=AAAA"),
        (b",p=", b",q="),
        (b",p=", b",p=\xff"),
        (b",r=", b",r= "),
    ]:
        with pytest.raises(AuthenticationFailed):
            after(change)
    after((b"c=biws", b"c=biws"))


def test_a_wrong_password_and_a_nonce_of_another_login() -> None:
    one, other = exchange(), exchange()
    challenge, others = one.respond(FIRST), other.respond(FIRST)
    assert isinstance(challenge, Challenge)
    assert isinstance(others, Challenge)
    assert challenge != others
    for message in (final(challenge, FIRST, b"pencils"), final(others, FIRST, b"pencil")):
        again = exchange()
        again._server_nonce = one._server_nonce
        again.respond(FIRST)
        with pytest.raises(AuthenticationFailed):
            again.respond(message)


def test_what_is_kept_is_not_shown() -> None:
    kept = credential()
    assert kept.stored_key.hex() not in repr(kept)
    assert repr(kept.stored_key) not in repr(kept)
