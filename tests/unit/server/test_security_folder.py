"""What a server makes for itself with `secure`, and keeps."""

import os
import shutil
import ssl
import stat
from collections.abc import Callable
from pathlib import Path

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from magnetar.base.errors import ConfigError
from magnetar.server.security_folder import SecurityFolder
from magnetar.testing.clock import FakeClock

NAMES = ["localhost", "127.0.0.1", "::1"]
KEPT = ("ca.key", "ca.pem", "token.key", "admin.token")


def prepared(folder: Path, clock: FakeClock, names: list[str] | None = None) -> SecurityFolder:
    made = SecurityFolder(folder, names or NAMES, clock)
    made.prepare()
    return made


def certificate(folder: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((folder / "server.pem").read_bytes())


def names_in(folder: Path) -> list[str]:
    found = certificate(folder).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in found]


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir()}


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now_ms=1_800_000_000_000)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "security"


def test_all_of_it_is_for_its_account_alone(folder: Path, clock: FakeClock) -> None:
    before = os.umask(0)
    try:
        prepared(folder, clock).write({"client.conf": "x"})
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()} == {0o600}
    assert sorted(contents(folder)) == sorted([*KEPT, "server.pem", "client.conf"])
    assert [one.name for one in folder.parent.iterdir()] == ["security"]


def test_what_others_could_read_is_kept_from_them(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock)
    folder.chmod(0o755)
    (folder / "ca.key").chmod(0o644)
    prepared(folder, clock)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "ca.key").stat().st_mode) == 0o600


def test_certificate_is_signed_by_the_authority_for_the_names(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock, [*NAMES, "kafka.example.com", "bücher.example", "fe80::1%eth0"])
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    certificate(folder).verify_directly_issued_by(authority)
    assert names_in(folder) == [*NAMES, "kafka.example.com", "xn--bcher-kva.example", "fe80::1"]
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    assert context.get_ca_certs()
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(folder / "server.pem")


def test_the_token_is_the_administrators(folder: Path, clock: FakeClock) -> None:
    made = prepared(folder, clock)
    secret = (folder / "token.key").read_bytes()
    assert jwt.decode(made.token(), secret, ["HS256"]) == {"sub": "admin"}


def test_a_later_start_uses_the_same_files(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock)
    before = contents(folder)
    clock.advance(100 * 86_400)
    prepared(folder, clock)
    assert contents(folder) == before


def test_other_names_get_another_certificate_of_the_same_authority(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock)
    before = contents(folder)
    prepared(folder, clock, [*NAMES, "10.0.0.5"])
    assert names_in(folder) == [*NAMES, "10.0.0.5"]
    after = contents(folder)
    assert {name for name in after if after[name] != before[name]} == {"server.pem"}


@pytest.mark.parametrize("days", [370, 400, 2000])
def test_a_certificate_that_ends_is_renewed_by_the_same_authority(
    folder: Path, clock: FakeClock, days: int
) -> None:
    prepared(folder, clock)
    before, first = contents(folder), certificate(folder)
    clock.advance(days * 86_400)
    made = SecurityFolder(folder, NAMES, clock)
    made.renew()
    after = contents(folder)
    assert {name for name in after if after[name] != before[name]} == {"server.pem"}
    assert certificate(folder).not_valid_after_utc > first.not_valid_after_utc
    certificate(folder).verify_directly_issued_by(x509.load_pem_x509_certificate(before["ca.pem"]))


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_certificate_that_cannot_be_used_is_made_anew(
    folder: Path, clock: FakeClock, damage: bytes | None
) -> None:
    prepared(folder, clock)
    if damage is None:
        (folder / "server.pem").unlink()
    else:
        (folder / "server.pem").write_bytes(damage)
    prepared(folder, clock)
    assert names_in(folder) == NAMES


@pytest.mark.parametrize("name", [one for one in KEPT if one != "ca.key"])
def test_a_file_that_is_missing_ends_the_start(folder: Path, clock: FakeClock, name: str) -> None:
    prepared(folder, clock)
    (folder / name).unlink()
    before = contents(folder)
    with pytest.raises(ConfigError, match=f"{name} is missing: put it back"):
        prepared(folder, clock)
    assert contents(folder) == before


def test_the_authoritys_key_is_only_needed_to_sign(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock)
    (folder / "ca.key").unlink()
    prepared(folder, clock)
    with pytest.raises(ConfigError, match=r"needs a new certificate, and .*ca.key is missing"):
        prepared(folder, clock, ["elsewhere"])


def test_a_name_that_no_certificate_can_have_is_refused(folder: Path, clock: FakeClock) -> None:
    with pytest.raises(ConfigError, match="no name that a certificate can have"):
        prepared(folder, clock, ["a..b"])


class Cut(BaseException):
    """The process ends here."""


def cut_at(step: int) -> Callable[[str], None]:
    """Ends the process at the `step`-th call: none after it is made."""
    count = 0

    def cut(_: str) -> None:
        nonlocal count
        count += 1
        if count >= step:
            raise Cut

    return cut


@pytest.mark.parametrize("step", range(1, 40))
def test_a_start_that_is_cut_off_anywhere_leaves_nothing_half(
    folder: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Before each call on the disk of a first start: the next one has all files, and they belong together."""
    cut = cut_at(step)
    with monkeypatch.context() as patch:
        for module, name in (
            (os, "open"),
            (os, "fsync"),
            (os, "mkdir"),
            (os, "rename"),
            (os, "replace"),
            (os, "unlink"),
            (os, "chmod"),
            (shutil, "rmtree"),
        ):
            real = getattr(module, name)

            def call(
                *given: object, _real: Callable[..., object] = real, _name: str = name, **more: object
            ) -> object:
                cut(_name)
                return _real(*given, **more)

            patch.setattr(module, name, call)
        try:
            prepared(folder, clock)
            was_cut = False
        except Cut:
            was_cut = True
    found = contents(folder) if folder.exists() else {}
    assert not found or set(KEPT) <= set(found), "half of a set has its name"
    made = prepared(folder, clock)
    secret = (folder / "token.key").read_bytes()
    assert jwt.decode(made.token(), secret, ["HS256"]) == {"sub": "admin"}
    authority = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    certificate(folder).verify_directly_issued_by(authority)
    assert sorted(contents(folder)) == sorted([*KEPT, "server.pem"])
    assert [one.name for one in folder.parent.iterdir()] == ["security"]
    if step < 20:
        assert was_cut, "the steps of a start are fewer than this test thinks"
    for name in KEPT:
        if name in found:
            assert found[name] == contents(folder)[name], "what had its name was made again"


def test_clients_files_are_written_when_they_change(folder: Path, clock: FakeClock) -> None:
    made = prepared(folder, clock)
    made.write({"client.conf": "a"})
    first = (folder / "client.conf").stat()
    made.write({"client.conf": "a"})
    assert (folder / "client.conf").stat().st_ino == first.st_ino
    made.write({"client.conf": "b"})
    assert (folder / "client.conf").read_text() == "b"


@pytest.mark.parametrize("name", ["token.key", "admin.token"])
@pytest.mark.parametrize("damage", [b"", b"\x92\x00\xff" * 20, b"a"])
def test_a_key_and_tokens_that_are_not_of_each_other_end_the_start(
    folder: Path, clock: FakeClock, name: str, damage: bytes
) -> None:
    prepared(folder, clock)
    (folder / name).write_bytes(damage)
    with pytest.raises(ConfigError, match="put it back, or move"):
        prepared(folder, clock)


def test_a_token_of_another_role_is_not_the_administrators(folder: Path, clock: FakeClock) -> None:
    prepared(folder, clock)
    other = jwt.encode({"sub": "alice"}, (folder / "token.key").read_bytes(), "HS256")
    (folder / "admin.token").write_text(other)
    with pytest.raises(ConfigError, match=r"admin\.token is no token of admin"):
        prepared(folder, clock)


@pytest.mark.parametrize(
    "key", [ec.generate_private_key(ec.SECP256R1()), ed25519.Ed25519PrivateKey.generate()]
)
def test_another_authoritys_key_signs_nothing(
    folder: Path, clock: FakeClock, key: ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
) -> None:
    prepared(folder, clock)
    (folder / "ca.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    before = contents(folder)
    with pytest.raises(ConfigError, match=r"ca\.key is not the key of"):
        prepared(folder, clock, ["kafka.example.com"])
    assert contents(folder) == before


def test_a_link_to_what_is_not_ours_changes_nothing_there(
    folder: Path, tmp_path: Path, clock: FakeClock
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    elsewhere.chmod(0o755)
    (elsewhere / "precious").touch()
    folder.symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="is missing"):
        prepared(folder, clock)
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o755
    folder.rename(folder.with_name("security.new"))  # where the folder is made
    prepared(folder, clock)
    assert [one.name for one in elsewhere.iterdir()] == ["precious"]
    assert not folder.is_symlink()


@pytest.mark.parametrize("years", [-3, 40])
def test_a_clock_by_which_the_authority_is_not_good_is_told(
    folder: Path, clock: FakeClock, caplog: pytest.LogCaptureFixture, years: int
) -> None:
    prepared(folder, clock)
    assert not [one for one in caplog.records if one.levelname == "WARNING"]
    prepared(folder, FakeClock(now_ms=clock.now_ms() + years * 365 * 86_400_000))
    (said,) = (one.getMessage() for one in caplog.records if one.levelname == "WARNING")
    assert "clients will refuse the server" in said
