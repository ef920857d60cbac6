"""Records of one piece from the broker, one answer after the other; the next one is requested while one is decoded."""

from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self

from magnetar.client.errors import NotFound, OutOfRange
from magnetar.client.login import Server
from magnetar.client.rest import Entries, Range, RestClient
from magnetar.pipelines.connector.read.client import asked, client_of
from magnetar.pipelines.connector.read.errors import SourceError
from magnetar.pipelines.connector.read.plan import Piece
from magnetar.wire.stored import RECORD, RECORD_BYTES

ASK_BYTES: Final = 4 << 20
ASK_WAIT_MS: Final = 1_000  # for acknowledged records that a restarted broker does not have yet


class Gone(SourceError):
    """The broker no longer has these offsets."""


class Fetcher:
    """Asks for the records of `piece`; starts a thread only if one answer is not enough."""

    def __init__(self, piece: Piece, server: Server, timeout_s: float) -> None:
        self._piece = piece
        self._server = server
        self._url = server.url
        self._timeout_s = timeout_s
        self._thread: ThreadPoolExecutor | None = None
        self._ahead: tuple[int, Future[Entries]] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def fetch(self, offset: int) -> Entries:
        """The records from the one with `offset` on.

        Raises:
            Gone: they, or the topic, were deleted.
            SourceError: the broker does not answer.
        """
        ahead, self._ahead = self._ahead, None
        answer = ahead[1].result() if ahead is not None and ahead[0] == offset else self._ask(offset)
        following = _behind(answer.data)
        if offset < following < self._piece.to_offset:
            if self._thread is None:
                self._thread = ThreadPoolExecutor(1, "fetch")
            self._ahead = (following, self._thread.submit(self._ask, following))
        return answer

    def assembled(self, offset: int) -> Entries:
        """The chunked message that ends at `offset`, put together.  Raises: SourceError."""
        piece = self._piece
        return asked(
            lambda: self._client.entries(
                piece.full, piece.partition, offset, bytes_max=1, end_offset=offset + 1, as_kafka=True
            ),
            url=self._url,
            timeout_s=self._timeout_s,
        )

    def earliest(self, offset: int) -> int:
        """Where the rest of the piece begins, at or after `offset`; its end if nothing is left."""
        piece = self._piece
        wanted = [Range(piece.full, piece.partition, offset, piece.to_offset)]
        (located,) = asked(
            lambda: self._client.segments(wanted), url=self._url, timeout_s=self._timeout_s
        ).partitions
        if located.error is not None or not offset < located.earliest < piece.to_offset:
            return piece.to_offset
        return located.earliest

    @property
    def _client(self) -> RestClient:
        return client_of(self._server, self._timeout_s)

    def _ask(self, offset: int) -> Entries:
        piece = self._piece
        try:
            return asked(
                lambda: self._client.entries(
                    piece.full,
                    piece.partition,
                    offset,
                    bytes_max=ASK_BYTES,
                    wait_ms=ASK_WAIT_MS,
                    end_offset=piece.to_offset,
                ),
                url=self._url,
                timeout_s=self._timeout_s,
            )
        except SourceError as error:
            if isinstance(error.__cause__, OutOfRange | NotFound):
                raise Gone(str(error.__cause__)) from error
            raise


def _behind(data: bytes) -> int:
    """The offset after the last record; -1 if there is none."""
    position, last = 0, -2
    while position + RECORD_BYTES <= len(data):
        length, _, _, _, last, _ = RECORD.unpack_from(data, position)
        position += RECORD_BYTES + length
    return last + 1
