"""When logins stop to count before their end, so that doors look at their connections at once.

A withdrawal names no login: each connection can ask whether its own still counts (`Authenticated.still_holds`).
"""

from magnetar.base.event import Event


class Withdrawals(Event[()]):
    """Those of all pipelines, of all functions, of all delegation tokens, or of all users of SCRAM.  One happens when a
    token may have been withdrawn, or a user deleted.
    """

    __slots__ = ()
