"""Where the records of TLS end in what a client sends (RFC 8446, 5.1), before they are decrypted.

    u8 content type   u16 version   u16 length   length bytes

OpenSSL that has only a part of a record says so by an exception, which costs as much as a quarter of the record's
decryption.  A client's records and what a socket gives at once hardly ever end together, so that would be one for each.
"""

from typing import Final

HEADER_BYTES: Final = 5
LENGTH_MAX: Final = 18 << 10  # of TLS 1.2, in which a cipher may add 2 KiB; what is longer OpenSSL refuses
TYPES: Final = range(20, 25)
# OpenSSL gets so much at once, or one record: it keeps the room for the most that it was ever given, and it works
# through messages that carry no data, such as updates of the keys (20 microseconds each, and an answer), without coming
# back.
PIECE_BYTES: Final = 16 << 10


class RecordEnds:
    """Follows one direction of one connection, whose every byte it is shown once."""

    __slots__ = ("_header", "_is_lost", "_missing")

    def __init__(self) -> None:
        self._header = b""  # of the record that has begun, as far as it has come, until it is whole
        self._missing = 0  # of the record that has begun, behind its header
        self._is_lost = False

    def take(self, data: memoryview, position: int) -> tuple[int, bool]:
        """The end of the next piece of `data`, and whether whole records end with it, and nothing else; otherwise it
        is all that `data` has left, which ends within a record.

        Where the bytes are no records, all that is left counts as whole: OpenSSL will say what is wrong.
        """
        size = len(data)
        if self._is_lost:
            return size, True
        start = end = position
        if self._missing:
            end += self._missing
            if end > size:
                self._missing = end - size
                return size, False
            self._missing = 0
        while end < size and end - start < PIECE_BYTES:
            body = end + HEADER_BYTES - len(self._header)
            if body > size:
                if end > start:
                    break
                self._header += bytes(data[end:])
                return size, False
            header = self._header + bytes(data[end:body]) if self._header else data[end:body]
            length = header[3] << 8 | header[4]
            if header[0] not in TYPES or length > LENGTH_MAX:
                self._is_lost = True
                return size, True
            if body + length > size:
                if end > start:
                    break
                self._header = b""
                self._missing = body + length - size
                return size, False
            if end > start and body + length - start > PIECE_BYTES:
                break
            self._header = b""
            end = body + length
        return end, True
