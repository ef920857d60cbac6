"""Finds where records of TLS end in a client's bytes (RFC 8446, section 5.1), before they are decrypted.

    u8 content type   u16 version   u16 length   length bytes

If OpenSSL has only a part of a record, it raises an exception, which costs a quarter of the record's decryption.  A
read of the socket hardly ever ends where a record does, so there would be an exception for each read.
"""

from typing import Final

HEADER_BYTES: Final = 5
LENGTH_MAX: Final = 18 << 10  # of TLS 1.2, in which a cipher may add 2 KiB; OpenSSL refuses longer records
TYPES: Final = range(20, 25)
# OpenSSL gets at most so many bytes at once, or one record.  It keeps memory for the most that it ever got, and it
# handles messages without data, such as updates of keys (20 microseconds each, and an answer), without returning in
# between.
PIECE_BYTES: Final = 16 << 10


class RecordEnds:
    """Follows one direction of one connection; it must get each byte once."""

    __slots__ = ("_header", "_is_lost", "_missing")

    def __init__(self) -> None:
        self._header = b""  # the received part of the current record's header, until it is whole
        self._missing = 0  # how many bytes of the current record's body are missing
        self._is_lost = False

    def take(self, data: memoryview, position: int) -> tuple[int, bool]:
        """The end of the next piece of `data`, and whether the piece ends with a whole record.  If it does not, the
        piece is the rest of `data`, which ends within a record.

        If the bytes are no records, the rest counts as whole, and OpenSSL reports what is wrong.
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
