"""Estimates of how many bytes a backlog has: all messages of a ledger count as equally large."""

from magnetar.ledger.readable_log import ReadableLog


def backlog_bytes(log: ReadableLog, offset: int) -> int:
    """About how many stored bytes are at or after `offset`."""
    end = log.high_watermark
    return bytes_between(log, offset, end) if offset < end else 0


def bytes_between(log: ReadableLog, begin: int, end: int) -> int:
    """About how many stored bytes are at or after `begin`, and before `end`, which is higher; looks only at the ledgers
    of these.
    """
    size = 0.0
    for info in log.ledgers_between(begin, end):
        count = info.end_offset - info.first_offset
        size += info.size_bytes * (min(end, info.end_offset) - max(begin, info.first_offset)) / count
    return round(size)


def offset_leaving(log: ReadableLog, size_bytes: int) -> int:
    """The first offset from which on there are about `size_bytes` or less; at most the log's end."""
    left = float(size_bytes)
    for info in reversed(list(log.ledgers)):
        count = info.end_offset - info.first_offset
        if count <= 0:
            continue
        if info.size_bytes > left:
            kept = int(count * left / info.size_bytes)
            return min(info.end_offset - kept, log.high_watermark)
        left -= info.size_bytes
    return log.log_start
