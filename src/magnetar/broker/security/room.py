"""The parts of this room that every server has, and what each of them gets."""

from typing import Final, Protocol

from magnetar.base.event import Event
from magnetar.base.settings_authorization import AuthorizationSettings
from magnetar.base.settings_delegation import DelegationTokenSettings
from magnetar.base.times import Times
from magnetar.broker.security.audit import Audit
from magnetar.broker.security.authorizer import AccessControl, AllowAll, Authorizer
from magnetar.broker.security.decisions import Decisions, Tenancy
from magnetar.broker.security.delegation_tokens import DelegationTokens
from magnetar.broker.security.rules import Rules
from magnetar.broker.security.scram_credentials import ScramCredentials
from magnetar.metadata.store import MetadataStore


class ChangingTenancy(Tenancy, Protocol):
    """What tenants and namespaces say, and when it changes."""

    @property
    def tenancy_changed(self) -> Event[()]: ...


class SecurityRoom:
    """See the module's text."""

    def __init__(
        self,
        rules: AuthorizationSettings | None,
        tokens: DelegationTokenSettings,
        metadata: MetadataStore,
        times: Times,
        tenancy: ChangingTenancy,
        home: str,
        audit: Audit | None,
        authorizer: Authorizer | None,
    ) -> None:
        """`home` is the namespace of Kafka's clients.  `authorizer` decides instead of the rules that are asked for;
        without both, each caller may do everything.
        """
        self.scram: Final = ScramCredentials(metadata)
        self.delegation_tokens: Final = DelegationTokens(metadata, times.clock, tokens, times.expiry.now_ms)
        self.rules: Final = None if rules is None else _rules(rules, metadata, tenancy, home)
        # Without rules nothing changes rights.
        self.rights_changed: Final[Event[()]] = Event() if self.rules is None else self.rules.rights_changed
        self.audit: Final = audit or Audit(times.clock)
        by_rules = AllowAll() if self.rules is None else self.rules.decisions
        self.access: Final = AccessControl(authorizer or by_rules, self.audit, home)


def _rules(
    settings: AuthorizationSettings, metadata: MetadataStore, tenancy: ChangingTenancy, home: str
) -> Rules:
    decisions = Decisions(
        settings.super_users,
        home,
        tenancy,
        open_without_rules=settings.open_without_rules,
        with_wildcards=settings.with_wildcards,
    )
    return Rules(metadata, decisions, tenancy.tenancy_changed)
