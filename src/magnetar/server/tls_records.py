"""Finds where records of TLS end in a client's bytes (RFC 8446, section 5.1), before they are decrypted.

    u8 content type   u16 version   u16 length   length bytes

If OpenSSL has only a part of a record, it raises an exception, which costs a quarter of the decryption of 16 KiB.  A
read of the socket hardly ever ends where a record does, so there would be an exception for each read.

To find the end of a small record costs a ninth of an exception.  So where many small records follow each other, their
ends are not looked for: OpenSSL gets a piece that ends anywhere, and says that a part is left.  From there on
the server does not know where records end, until OpenSSL has used up all that it got and none is begun.
"""

from struct import Struct
from typing import Final

HEADER_BYTES: Final = 5
_UNPACK: Final = Struct(">BHH").unpack_from
LENGTH_MAX: Final = 18 << 10  # of TLS 1.2, in which a cipher may add 2 KiB; OpenSSL refuses longer records
_FIRST_TYPE: Final = 20
_LAST_TYPE: Final = 24
# OpenSSL gets at most so many bytes at once, or one record.  It keeps memory for the most that it ever got.  It handles
# messages without data, such as updates of keys (20 microseconds each, and an answer), without returning in between.
PIECE_BYTES: Final = 16 << 10
LOOKED_AT: Final = 4  # so many records say how long the next ones are
TIMES_MORE: Final = (
    2  # if more than that, so twice as many, would follow, an exception is cheaper than their ends
)


class RecordEnds:
    """Follows one direction of one connection; it must get each byte once.

    are_followed  whether it knows where records end, so that pieces have whole ones.  It gives that up by itself; set
                  it when the next byte begins a record
    """

    __slots__ = ("_header", "_is_lost", "_missing", "are_followed")

    def __init__(self) -> None:
        self.are_followed = True
        self._header = b""  # the received part of the current record's header, until it is whole
        self._missing = 0  # how many bytes of the current record's body are missing
        self._is_lost = False

    def take(self, data: memoryview, position: int) -> tuple[int, bool]:
        """The end of the next piece of `data`, and whether OpenSSL may find the end of a record in it.

        While `are_followed` holds, the piece ends with a record if there is one in it, and else is the rest of `data`.
        If the bytes are no records, the rest counts as whole, and OpenSSL reports what is wrong.
        """
        size = len(data)
        if self._is_lost:
            return size, True
        if not self.are_followed:
            return min(position + PIECE_BYTES, size), True
        start = end = position
        if self._missing or self._header:
            end = self._end_of_begun(data, start)
            if end > size:
                self._missing = end - size
            if end > size or self._header or self._is_lost:
                return size, self._is_lost
        limit = start + PIECE_BYTES
        first, looked_at = end, 0
        # A client may send a record for each of its messages: this loop is the price of each.
        while end < limit and end + HEADER_BYTES <= size:
            if looked_at == LOOKED_AT and min(limit, size) - end > TIMES_MORE * (end - first):
                self.are_followed = False
                return min(limit, size), True
            looked_at += 1
            kind, _, length = _UNPACK(data, end)
            if not _FIRST_TYPE <= kind <= _LAST_TYPE or length > LENGTH_MAX:
                self._is_lost = True
                return size, True
            stop = end + HEADER_BYTES + length
            if stop > size or stop > limit:
                if end > start:
                    break
                if stop > size:
                    self._missing = stop - size
                    return size, False
            end = stop
        if end == start:
            self._header = bytes(data[end:])
            return size, False
        return end, True

    def _end_of_begun(self, data: memoryview, start: int) -> int:
        """Where the record ends that began in earlier bytes.  If its header is not whole yet, or is none, the answer
        is the end of `data`, and `_header` or `_is_lost` says so.
        """
        if self._missing:
            end, self._missing = start + self._missing, 0
            return end
        body = start + HEADER_BYTES - len(self._header)
        self._header += bytes(data[start:body])
        if len(self._header) < HEADER_BYTES:
            return len(data)
        kind, _, length = _UNPACK(self._header)
        self._header = b""
        self._is_lost = not _FIRST_TYPE <= kind <= _LAST_TYPE or length > LENGTH_MAX
        return len(data) if self._is_lost else body + length
