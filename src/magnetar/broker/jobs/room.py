"""The parts of this room, and what each of them gets.  Links are made before, because schemas need them."""

from typing import Final

from magnetar.base.clock import Clock
from magnetar.broker.jobs.function_secrets import FunctionSecrets
from magnetar.broker.jobs.functions import FunctionRights, Functions
from magnetar.broker.jobs.key_stores import KeyStores, SealedKeyStore
from magnetar.broker.jobs.pipelines import Pipelines
from magnetar.broker.jobs.replicator_keys import ReplicatorKeys
from magnetar.broker.jobs.replicators import Replicators
from magnetar.broker.jobs.settings import JobSettings
from magnetar.broker.policy.namespaces import Namespaces
from magnetar.broker.subscriptions.admin import SubscriptionAdmin
from magnetar.broker.topics.registry import TopicRegistry
from magnetar.ledger.cursor_store import CursorStore
from magnetar.metadata.store import MetadataStore
from magnetar.replicators.registry import find_provider


class JobRoom:
    """See the module's text.  `function_rights` are those of functions' owners."""

    def __init__(
        self,
        settings: JobSettings,
        metadata: MetadataStore,
        clock: Clock,
        namespaces: Namespaces,
        topics: TopicRegistry,
        cursors: CursorStore,
        subscription_admin: SubscriptionAdmin,
        function_rights: FunctionRights,
    ) -> None:
        key_stores = KeyStores(
            SealedKeyStore(metadata, settings.keys), settings.environment, settings.variables
        )
        self.pipelines: Final = Pipelines(metadata, clock, cursors, settings.table_roots, settings.keys)
        self.functions: Final = Functions(
            metadata,
            clock,
            namespaces.policies_of,
            FunctionSecrets(key_stores, metadata, clock),
            function_rights,
            enabled=settings.functions_enabled,
        )
        self.replicators: Final = Replicators(
            namespaces,
            topics,
            self.pipelines,
            subscription_admin,
            ReplicatorKeys(key_stores, clock),
            clock,
            find_provider,
        )
