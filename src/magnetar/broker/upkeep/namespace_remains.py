"""What is kept of a namespace besides its topics and policies, and goes before it is deleted."""

from magnetar.broker.jobs.replicators import Replicators
from magnetar.broker.security.rules import Rules


class NamespaceRemains:
    """See the module's text.  `rules` is None if there are none."""

    def __init__(self, replicators: Replicators, rules: Rules | None) -> None:
        self._replicators = replicators
        self._rules = rules

    async def forget(self, namespace: str) -> None:
        """Delete the credentials of its replicators, and then the rules about it.

        Raises:
            InvalidReplicator: a key store does not delete credentials; the rules are as before.
            MetadataError
        """
        await self._replicators.forget_namespace(namespace)
        if self._rules is not None:
            await self._rules.forget_namespace(namespace)
