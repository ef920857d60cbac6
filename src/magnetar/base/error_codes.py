"""Codes of REST's refusals that Magnetar's own clients act on, or that more than one place refuses with.

Code that refuses and code that compares take them from here.  All other codes are written where they are used: on the
class of the error (`BrokerError.code`), or beside the sentence of the refusal.
"""

from typing import Final

CROWDED: Final = "CROWDED"  # too many ask or wait at this moment
TOPIC_NOT_AUTHORIZED: Final = "TOPIC_NOT_AUTHORIZED"
WORKER_BUSY: Final = "WORKER_BUSY"
WORKER_FENCED: Final = "WORKER_FENCED"
