"""The name in a certificate: the answers are those of Java's `X500Principal.getName()` to the same certificates."""

import datetime
import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID as Oid

from magnetar.base.distinguished_name import common_name, distinguished_name
from magnetar.base.names import PRINCIPAL_BYTES_MAX

KEY = ec.generate_private_key(ec.SECP256R1())
DAY = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def part(
    *attributes: tuple[x509.ObjectIdentifier, str] | x509.NameAttribute[str],
) -> x509.RelativeDistinguishedName:
    made = (one if isinstance(one, x509.NameAttribute) else x509.NameAttribute(*one) for one in attributes)
    return x509.RelativeDistinguishedName(made)


def certificate(*parts: x509.RelativeDistinguishedName) -> bytes:
    builder = x509.CertificateBuilder(
        issuer_name=x509.Name([part((Oid.COMMON_NAME, "issuer"))]),
        subject_name=x509.Name(parts),
        public_key=KEY.public_key(),
        serial_number=5,
        not_valid_before=DAY,
        not_valid_after=DAY + datetime.timedelta(1),
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([], ""),
        (
            [
                part((Oid.ORGANIZATION_NAME, "Magnetar")),
                part((Oid.ORGANIZATIONAL_UNIT_NAME, "People")),
                part((Oid.COMMON_NAME, "Dave")),
            ],
            "CN=Dave,OU=People,O=Magnetar",
        ),
        (
            [
                part((Oid.COUNTRY_NAME, "AT")),
                part((Oid.STATE_OR_PROVINCE_NAME, "Wien")),
                part((Oid.LOCALITY_NAME, "W")),
                part((Oid.STREET_ADDRESS, "x")),
                part((Oid.DOMAIN_COMPONENT, "org")),
                part((Oid.USER_ID, "u1")),
            ],
            "UID=u1,DC=org,STREET=x,L=W,ST=Wien,C=AT",
        ),
        (
            [part((Oid.SERIAL_NUMBER, "12")), part((Oid.TITLE, "Dr")), part((Oid.EMAIL_ADDRESS, "a@b.c"))],
            "1.2.840.113549.1.9.1=#16056140622e63,2.5.4.12=#0c024472,2.5.4.5=#13023132",
        ),
        ([part((Oid.COMMON_NAME, 'x,y=z+<>#;"\\'))], r"CN=x\,y\=z\+\<\>\#\;\"\\"),
        ([part((Oid.COMMON_NAME, "  two  lead"))], r"CN=\ \ two  lead"),
        ([part((Oid.COMMON_NAME, "trail  "))], r"CN=trail\ \ "),
        ([part((Oid.COMMON_NAME, "   "))], r"CN=\ \ \ "),
        ([part((Oid.COMMON_NAME, " ,lead"))], r"CN=\ \,lead"),
        ([part((Oid.COMMON_NAME, "a\0b")), part((Oid.LOCALITY_NAME, "\rcr\r"))], "L=\\\rcr\\\r,CN=a\\00b"),
        ([part((Oid.LOCALITY_NAME, "\nnl\n"))], "L=\nnl\n"),
        ([part((Oid.USER_ID, "ü€😀"))], "UID=ü€😀"),
        (
            [
                part((Oid.ORGANIZATION_NAME, "M")),
                part((Oid.USER_ID, "zz"), (Oid.COMMON_NAME, "a"), (Oid.EMAIL_ADDRESS, "q@r")),
            ],
            "CN=a+1.2.840.113549.1.9.1=#1603714072+UID=zz,O=M",
        ),
        (
            [
                part(x509.NameAttribute(Oid.COMMON_NAME, "bm", _ASN1Type.BMPString)),
                part(x509.NameAttribute(Oid.ORGANIZATION_NAME, "uni", _ASN1Type.UniversalString)),
                part(x509.NameAttribute(Oid.LOCALITY_NAME, "t61", _ASN1Type.T61String)),
            ],
            r"L=t61,O=#1c0c000000750000006e00000069,CN=\00b\00m",
        ),
    ],
)
def test_name_is_the_one_that_java_gives(parts: list[x509.RelativeDistinguishedName], name: str) -> None:
    assert distinguished_name(certificate(*parts)) == name


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("CN=Dave,OU=People,O=Magnetar", "Dave"),
        ("UID=u1,CN=Dave,CN=Other", "Dave"),
        ("OU=People,O=Magnetar", ""),
        ("", ""),
        ("CN=,CN=second", "second"),
        (r"O=x\,CN\=admin", ""),
        (r"CN=a\=b\+c,O=x", r"a\=b\+c"),
        ("CN=a+OU=b,O=x", "a+OU=b"),
        (r"CN=a\,b,O=x", ""),
        (r"CN=a\\,O=x", r"a\\"),
    ],
)
def test_role_is_the_common_name_as_pulsars_broker_takes_it(name: str, role: str) -> None:
    assert common_name(name) == role


def test_a_value_cannot_look_like_another_attribute() -> None:
    name = distinguished_name(certificate(part((Oid.ORGANIZATION_NAME, "x,CN=admin"))))
    assert name == r"O=x\,CN\=admin"


def test_what_is_cut_off_has_no_name() -> None:
    whole = certificate(part((Oid.COMMON_NAME, "Dave")))
    for size in range(len(whole)):
        with pytest.raises(ValueError):  # noqa: PT011 - any of its sentences
            distinguished_name(whole[:size])


def test_what_is_damaged_is_a_value_error_or_another_name() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    choice = random.Random(seed)
    whole = certificate(part((Oid.COMMON_NAME, "Dave")), part((Oid.EMAIL_ADDRESS, "a@b.c")))
    for _ in range(5_000):
        damaged = bytearray(whole)
        for _ in range(choice.randint(1, 3)):
            damaged[choice.randrange(len(damaged))] = choice.randrange(256)
        try:
            distinguished_name(bytes(damaged))
        except ValueError:
            continue


def test_names_that_no_protocol_could_carry_are_refused() -> None:
    long = [part((Oid.ORGANIZATIONAL_UNIT_NAME, "x" * 60)) for _ in range(PRINCIPAL_BYTES_MAX // 60)]
    with pytest.raises(ValueError, match="a name that is too long"):
        distinguished_name(certificate(*long))


def test_an_object_identifier_is_short() -> None:
    # To write out its numbers takes the square of its length: one of 60 KB held up the event loop for 0.4 s.
    kind = b"\x06\x82\x10\x00" + b"\x81" * 0xFFF + b"\x01"
    attribute = b"\x30\x82\x10\x06" + kind + b"\x0c\x00"
    row = b"\x31\x82\x10\x0a" + attribute
    name = b"\x30\x82\x10\x0e" + row
    empty = b"\x30\x00"
    body = b"\x02\x01\x05" + empty * 3 + name
    inner = b"\x30\x82" + len(body).to_bytes(2) + body
    with pytest.raises(ValueError, match="an object identifier that is too long"):
        distinguished_name(b"\x30\x82" + len(inner).to_bytes(2) + inner)
