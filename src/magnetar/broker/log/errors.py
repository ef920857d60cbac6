"""The exception by which an append asks its caller for more work."""


class NeedsOpening(Exception):
    """The caller must call `batch_check.check_keys`, on a thread and not on the event loop."""
