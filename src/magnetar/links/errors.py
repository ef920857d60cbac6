"""Why topics are not copied; each text is one sentence for the user."""

from magnetar.base.errors import MagnetarError


class LinkError(MagnetarError):
    """The copying ends."""


class SourceUnavailable(LinkError):
    """The source does not answer, or refuses what the program asks."""
