"""Reads one piece of a partition: from its segment file if it can open that, else from the broker.

It returns columns in the order of the log, with exactly the rows of the piece.  A lease protects the file from
deletion, and is renewed meanwhile.  If the lease is lost and the file is gone, the broker is asked for the records,
and reports if these were deleted, too.  It is also asked where the file is damaged.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from magnetar.base.errors import EntryCorrupt, LedgerNotFound, StorageError
from magnetar.client.errors import ClientError
from magnetar.client.login import Server
from magnetar.pipelines.connector.read.client import LEASE_S, client_of
from magnetar.pipelines.connector.read.errors import DataLost, SourceError
from magnetar.pipelines.connector.read.fetch import Fetcher, Gone
from magnetar.pipelines.connector.read.options import ReadMode
from magnetar.pipelines.connector.read.plan import Piece
from magnetar.storage.segment_file import SegmentFile
from magnetar.wire.columns import Columns, Decoded, Wanted, Window, decode

log: Final = logging.getLogger(__name__)

FILE_BYTES: Final = 2 << 20  # bytes decoded at a time
RENEW_EVERY_S: Final = LEASE_S / 5
RENEWALS_MAX: Final = 1_000
RENEW_WITHIN_S: Final = 1.0  # a short wait, because files can be read without the broker


@dataclass(frozen=True, slots=True)
class Scan:
    """What all pieces of a query share.

    `url` is the address of the broker's REST, and `context` says how to log in there (`client/login.py`).  `store` is
    the id of its store, which must be in a file beside the segments; None if nothing is in files.
    """

    url: str
    store: str | None
    lease: str | None
    leased_at: float  # seconds since 1970
    mode: ReadMode
    committed: bool
    fail_on_data_loss: bool
    timeout_s: float
    from_timestamp_ms: int | None = None
    to_timestamp_ms: int | None = None
    context: str = ""

    @property
    def server(self) -> Server:
        return Server(self.url, self.context)


def read_piece(scan: Scan, piece: Piece, wanted: Wanted) -> Iterator[Columns]:
    """The rows of a piece.  The arrays are the reader's own.

    Raises:
        DataLost: records are gone or cannot be decoded, and that is an error.
        SourceError: the broker does not answer for `timeout_s`, or bytes are damaged.
    """
    reader = _PieceReader(scan, piece, wanted)
    try:
        yield from reader.rows()
    except (EntryCorrupt, StorageError) as error:
        raise SourceError(
            f"topic {piece.topic} partition {piece.partition} cannot be read at offset {reader.offset}: {error}"
        ) from error


class _PieceReader:
    """`offset` is the first offset whose rows have not been returned."""

    def __init__(self, scan: Scan, piece: Piece, wanted: Wanted) -> None:
        self._scan = scan
        self._piece = piece
        self._wanted = wanted
        self._fetcher = Fetcher(piece, scan.server, scan.timeout_s)
        self.offset = piece.from_offset

    def rows(self) -> Iterator[Columns]:
        if self._piece.path is not None and self._scan.mode is not ReadMode.BROKER:
            self._renew()
            try:
                segment = self._open(self._piece.path)
            except (LedgerNotFound, StorageError) as error:
                if self._scan.mode is ReadMode.DIRECT:
                    raise SourceError(
                        f"{error}; read.mode direct needs the broker's files on every machine: use auto"
                    ) from error
                log.info("%s; the query asks the broker instead", error)
            else:
                with segment:
                    try:
                        yield from self._from_file(segment)
                    except EntryCorrupt as error:
                        # The broker finds the damage when it is asked for the records, and tells its operator of it.
                        log.warning("%s; the query asks the broker for what follows", error)
                        if self._scan.mode is ReadMode.DIRECT:
                            with suppress(SourceError), self._fetcher:
                                self._fetcher.fetch(self.offset)
                            raise
        yield from self._from_broker()

    def _open(self, path: str) -> SegmentFile:
        if self._scan.store is None:
            raise StorageError("the broker keeps nothing in files")
        return SegmentFile.open(path, self._scan.store, self._piece.ledger)

    # -- the source of bytes

    def _from_file(self, segment: SegmentFile) -> Iterator[Columns]:
        pieces = segment.pieces(self._piece.position, self._piece.end_position, FILE_BYTES)
        while (data := pieces.next()) is not None:
            done = 0
            while done < len(data):
                decoded, columns = self._decode(data[done:])
                yield from columns
                if not decoded.consumed:
                    break
                done += decoded.consumed
            pieces.consumed(done)
            self._renew()

    def _from_broker(self) -> Iterator[Columns]:
        scan, piece = self._scan, self._piece
        give_up_at = time.monotonic() + scan.timeout_s
        with self._fetcher:
            while self.offset < piece.to_offset:
                begun = self.offset
                try:
                    answer = self._fetcher.fetch(begun)
                except Gone as error:
                    self._lost(f"offsets from {begun} on are not there any more ({error})", error)
                    self.offset = self._fetcher.earliest(begun)
                    continue
                data = memoryview(answer.data)
                while len(data):
                    decoded, columns = self._decode(data)
                    yield from columns
                    if not decoded.consumed:
                        break
                    data = data[decoded.consumed :]
                if self.offset > begun:
                    give_up_at = time.monotonic() + scan.timeout_s
                elif time.monotonic() > give_up_at:
                    raise SourceError(
                        f"topic {piece.topic} partition {piece.partition} should have offset {begun} and has not had it"
                        f" for {scan.timeout_s:g} s (it ends at {answer.high_watermark}); was the topic made anew?"
                    )

    # -- rows of bytes

    def _decode(self, data: memoryview) -> tuple[Decoded, Iterator[Columns]]:
        """Decode the next records of `data`, with an iterator of their rows; `offset` moves to after them."""
        decoded = decode(data, self._wanted, self._window(self.offset, self._piece.to_offset))
        if decoded.undecodable:
            offset, reason = decoded.undecodable[0]
            self._lost(f"the entry at offset {offset} cannot be decoded ({reason})")
        first = self.offset
        self.offset = max(self.offset, decoded.last_offset + 1)
        if decoded.needs_assembly:
            return decoded, self._with_assembled(data[: decoded.consumed], first, decoded)
        return decoded, iter((decoded.columns,) if decoded.columns.count else ())

    def _with_assembled(self, data: memoryview, first: int, decoded: Decoded) -> Iterator[Columns]:
        """The rows of `data` from offset `first` on, in order, with those of chunked messages, which the broker
        assembles.
        """
        end = min(decoded.last_offset + 1, self._piece.to_offset)
        for offset in sorted(decoded.needs_assembly):
            yield from self._between(data, first, offset)
            yield from self._assembled(offset)
            first = offset + 1
        yield from self._between(data, first, end)

    def _between(self, data: memoryview, first: int, end: int) -> Iterator[Columns]:
        if first < end:
            columns = decode(data, self._wanted, self._window(first, end)).columns
            if columns.count:
                yield columns

    def _assembled(self, offset: int) -> Iterator[Columns]:
        """The chunked message that ends at `offset`, which the broker assembles."""
        answer = self._fetcher.assembled(offset)
        columns = decode(memoryview(answer.data), self._wanted, self._window(offset, offset + 1)).columns
        if columns.count:
            yield columns

    def _window(self, first: int, end: int) -> Window:
        return Window(
            from_offset=first,
            to_offset=end,
            from_timestamp_ms=self._scan.from_timestamp_ms,
            to_timestamp_ms=self._scan.to_timestamp_ms,
            committed=self._scan.committed,
            aborted=self._piece.aborted,
        )

    def _lost(self, what: str, cause: BaseException | None = None) -> None:
        text = f"topic {self._piece.topic} partition {self._piece.partition}: {what}"
        if self._scan.fail_on_data_loss:
            raise DataLost(f"{text}; set failOnDataLoss to false to read what is left") from cause
        log.warning("%s; failOnDataLoss is false, so the query continues behind it", text)

    # -- the lease

    def _renew(self) -> None:
        """Renew the lease.  If it is lost, the reader notices that only when a file is gone."""
        lease, now = self._scan.lease, time.time()
        if lease is None or now < _renewals.get(lease, self._scan.leased_at + RENEW_EVERY_S):
            return
        if len(_renewals) >= RENEWALS_MAX:
            _renewals.clear()
        _renewals[lease] = now + RENEW_EVERY_S
        with suppress(ClientError):
            client_of(self._scan.server, RENEW_WITHIN_S).renew_lease(lease, LEASE_S)


_renewals: dict[str, float] = {}  # when this process must renew a lease next; tasks share it
