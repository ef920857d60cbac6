"""What functions need around them in tests."""

from collections.abc import Mapping
from typing import TypeVar

from magnetar.base.event import Event
from magnetar.base.replicator_variables import ReplicatorVariables
from magnetar.broker.jobs.function_secrets import FunctionSecrets
from magnetar.broker.jobs.functions import FunctionRights, Functions
from magnetar.broker.jobs.key_stores import KeyStores, SealedKeyStore
from magnetar.broker.jobs.model import PipelineKeys
from magnetar.broker.policy.model import Policies
from magnetar.metadata.store import MetadataStore
from magnetar.testing.clock import FakeClock

Kind = TypeVar("Kind", bound=Functions)


def secrets_in(
    metadata: MetadataStore, key: bytes = b"k" * 32, environment: Mapping[str, str] | None = None
) -> FunctionSecrets:
    """Key stores with these sealed by `key`; functions of public/default may use variables FN_*."""
    variables = ReplicatorVariables.of(["public/default:FN_*"])
    sealed = SealedKeyStore(metadata, PipelineKeys(sealing=key))
    return FunctionSecrets(KeyStores(sealed, environment or {}, variables), metadata, FakeClock())


def functions_in(metadata: MetadataStore, clock: FakeClock | None = None) -> Functions:
    """Functions that all owners may run, with the default policies everywhere."""
    return functions_of(Functions, metadata, clock or FakeClock())


def functions_of(kind: type[Kind], metadata: MetadataStore, clock: FakeClock) -> Kind:
    """As `functions_in`, of a class that derives from `Functions`."""
    return kind(
        metadata,
        clock,
        lambda _: Policies(),
        secrets_in(metadata),
        FunctionRights(lambda _: True, lambda *_: True, Event()),
        enabled=True,
    )
