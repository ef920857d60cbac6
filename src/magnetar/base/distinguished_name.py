"""The name in a certificate, in the form that Java gives it, and so Kafka and Pulsar: RFC 2253, the last part first.

    CN=Dave,OU=People,O=Magnetar

Rules and ACLs of existing clusters are written for exactly that text, so it is Java's `X500Principal.getName()` in
everything.  The two agree on which types have words; the others are numbers with their value in hexadecimal.  They also
agree on which characters have a backslash, and on the order of values that stand together in one part.

The certificate is DER, and TLS has verified it.  This module does not read a certificate that TLS would not have taken,
or BER, which no authority writes: such a certificate has no name.
"""

from typing import Final

from magnetar.base.der import OBJECT_ID, SEQUENCE, DerValue, der_content, der_values
from magnetar.base.names import PRINCIPAL_BYTES_MAX

# Under this name a transport with TLS has the name in the certificate that its client has shown (`server/tls.py`).
CERTIFICATE_NAME: Final = "certificate_name"

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
OBJECT_ID_BYTES_MAX: Final = 64
_SET, _VERSION = 0x31, 0xA0
# UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString: Java reads all of them as UTF-8.
_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E))
_ESCAPED: Final = str.maketrans({char: f"\\{char}" for char in ',=+<>#;"\\'} | {"\0": "\\00"})
_BLANKS: Final = " \r"
_SUBJECT_AT: Final = 4  # behind serial number, algorithm, issuer and validity


def distinguished_name(certificate: bytes) -> str:
    """The name of a certificate's owner; empty if it has none.

    Raises:
        ValueError: it cannot be read.
    """
    (outer,) = der_values(certificate)
    body, *_ = der_values(der_content(outer, SEQUENCE))
    fields = list(der_values(der_content(body, SEQUENCE)))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) <= _SUBJECT_AT:
        raise ValueError("a certificate without a field for its name")
    parts = list(der_values(der_content(fields[_SUBJECT_AT], SEQUENCE)))
    name = ",".join(_part(one) for one in reversed(parts))
    if len(name.encode()) > PRINCIPAL_BYTES_MAX:
        raise ValueError("a name that is too long")
    return name


def common_name(distinguished_name: str) -> str:
    r"""The CN in a name, as Pulsar's broker takes it for a role; empty if there is none.

    Its broker cuts the name at every comma, and takes the first piece that begins with `CN=`, backslashes and all.  A
    CN with a comma in it would be `a\` for any `a\,b`: it counts as none.
    """
    pieces = (piece.partition("=") for piece in distinguished_name.split(","))
    found = next((value for keyword, _, value in pieces if keyword == "CN" and value), "")
    is_cut = (len(found) - len(found.rstrip("\\"))) % 2 == 1
    return "" if is_cut else found


def _part(part: DerValue) -> str:
    return "+".join(_attribute(one) for one in der_values(der_content(part, _SET)))


def _attribute(attribute: DerValue) -> str:
    kind, value = der_values(der_content(attribute, SEQUENCE))
    number = _object_id(der_content(kind, OBJECT_ID))
    keyword = _KEYWORDS.get(number)
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or number}=#{value.whole.hex()}"
    text = value.content.decode("utf-8", "replace").translate(_ESCAPED)
    inner = text.strip(_BLANKS)
    if not inner:
        return f"{keyword}={_with_backslashes(text)}"
    before, _, after = text.partition(inner)
    return f"{keyword}={_with_backslashes(before)}{inner}{_with_backslashes(after)}"


def _with_backslashes(text: str) -> str:
    return "".join(f"\\{char}" for char in text)


def _object_id(content: bytes) -> str:
    if not content or content[-1] & 0x80:
        raise ValueError("an object identifier without an end")
    if len(content) > OBJECT_ID_BYTES_MAX:  # to write out a number takes the square of its length
        raise ValueError("an object identifier that is too long")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
