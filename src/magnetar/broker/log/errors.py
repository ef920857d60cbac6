"""What an append asks of its caller."""


class NeedsOpening(Exception):
    """The records have to be looked at (`batch_check.check_keys`), and that is not for the event loop."""
