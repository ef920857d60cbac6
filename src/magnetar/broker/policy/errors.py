"""Errors about tenants and namespaces, policies, and the settings of a topic."""

from typing import ClassVar

from magnetar.base.errors import BrokerError
from magnetar.broker.errors import PolicyViolation


class TenantNotFound(BrokerError):
    """No such tenant."""

    code: ClassVar[str] = "TENANT_NOT_FOUND"


class TenantExists(BrokerError):
    """A tenant with this name exists."""

    code: ClassVar[str] = "TENANT_EXISTS"


class TenantNotEmpty(BrokerError):
    """The tenant has namespaces."""

    code: ClassVar[str] = "TENANT_NOT_EMPTY"


class TooManyTenants(PolicyViolation):
    """The server's settings do not allow so many tenants."""

    code: ClassVar[str] = "TOO_MANY_TENANTS"


class TooManyNamespaces(PolicyViolation):
    """The server's settings do not allow a tenant so many namespaces."""

    code: ClassVar[str] = "TOO_MANY_NAMESPACES"


class NamespaceNotFound(BrokerError):
    """No such namespace."""

    code: ClassVar[str] = "NAMESPACE_NOT_FOUND"


class NamespaceExists(BrokerError):
    """A namespace with this name exists."""

    code: ClassVar[str] = "NAMESPACE_EXISTS"


class InvalidNamespace(BrokerError):
    """The name of a tenant or namespace, or a value for it, is not allowed."""

    code: ClassVar[str] = "INVALID_NAMESPACE"


class UnknownCluster(BrokerError):
    """There is one cluster here, and it has another name."""

    code: ClassVar[str] = "UNKNOWN_CLUSTER"


class InvalidPolicy(BrokerError):
    """This policy cannot have this value."""

    code: ClassVar[str] = "INVALID_POLICY"


class MalformedPolicy(InvalidPolicy):
    """The value has the wrong JSON type."""

    code: ClassVar[str] = "MALFORMED_POLICY"


class QuotaAboveRetention(InvalidPolicy):
    """A backlog quota is larger than what retention keeps of acknowledged data."""

    code: ClassVar[str] = "QUOTA_ABOVE_RETENTION"


class ResourceGroupNotFound(BrokerError):
    """No such resource group."""

    code: ClassVar[str] = "RESOURCE_GROUP_NOT_FOUND"


class ResourceGroupInUse(BrokerError):
    """The resource group has namespaces."""

    code: ClassVar[str] = "RESOURCE_GROUP_IN_USE"


class InvalidConfig(BrokerError):
    """A key is unknown, or its value is not allowed (Kafka: INVALID_CONFIG)."""

    code: ClassVar[str] = "INVALID_CONFIG"


class InvalidConfigRequest(BrokerError):
    """The request to change a configuration contradicts itself (Kafka: INVALID_REQUEST)."""

    code: ClassVar[str] = "INVALID_CONFIG_REQUEST"
