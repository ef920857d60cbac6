"""The dispatcher that a subscription gets from its first consumer's wishes and its topic's policies."""

from magnetar.broker.partition import Partition
from magnetar.broker.policies import Policies
from magnetar.broker.subscriptions.consumer import ConsumerSpec
from magnetar.broker.subscriptions.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.subscriptions.dispatch.model import Dispatcher, SubscriptionType
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from magnetar.broker.subscriptions.errors import SubscriptionNotAllowed


def make_dispatcher(partition: Partition, spec: ConsumerSpec, policies: Policies) -> Dispatcher:
    """A new dispatcher of `spec.type`, without consumers.

    Raises:
        SubscriptionNotAllowed: there is none of this type.
    """
    match spec.type:
        case SubscriptionType.EXCLUSIVE:
            return ExclusiveDispatcher()
        case SubscriptionType.SHARED:
            return SharedDispatcher(tick_ms=policies.delayed_delivery.tick_ms)
    raise SubscriptionNotAllowed(f"{spec.type.name} subscriptions are not served")
