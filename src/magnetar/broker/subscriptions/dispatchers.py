"""The dispatcher that a subscription gets from its first consumer's wishes and its topic's policies."""

from magnetar.broker.log.partition import Partition
from magnetar.broker.policy.model import SUBSCRIPTION_TYPES, Policies
from magnetar.broker.subscriptions.dispatch.exclusive import ExclusiveDispatcher
from magnetar.broker.subscriptions.dispatch.failover import FailoverDispatcher
from magnetar.broker.subscriptions.dispatch.key_shared import KeySharedDispatcher
from magnetar.broker.subscriptions.dispatch.model import Dispatcher
from magnetar.broker.subscriptions.dispatch.multi import MultiConsumerDispatcher
from magnetar.broker.subscriptions.dispatch.shared import SharedDispatcher
from magnetar.broker.subscriptions.errors import SubscriptionBusy, SubscriptionNotAllowed
from magnetar.broker.subscriptions.model import ConsumerSpec, SubscriptionType


def make_dispatcher(partition: Partition, spec: ConsumerSpec, policies: Policies) -> Dispatcher:
    """A new dispatcher of `spec.type`, without consumers."""
    dispatcher = _make(partition, spec, policies)
    if isinstance(dispatcher, MultiConsumerDispatcher):
        dispatcher.delays_messages = policies.delayed_delivery.active
    return dispatcher


def _make(partition: Partition, spec: ConsumerSpec, policies: Policies) -> Dispatcher:
    tick_ms, unacked_max = policies.delayed_delivery.tick_ms, policies.unacked_limits.subscription
    match spec.type:
        case SubscriptionType.EXCLUSIVE:
            return ExclusiveDispatcher()
        case SubscriptionType.FAILOVER:
            topic = partition.topic
            return FailoverDispatcher(
                topic.name.full,
                partition.index if topic.is_partitioned else None,
                # Nothing is sent twice by a topic that stores nothing.
                delay_ms=policies.failover_delay_ms if topic.name.persistent else 0,
                now_ms=partition.log.now_ms,
            )
        case SubscriptionType.SHARED:
            return SharedDispatcher(unacked_messages_max=unacked_max, tick_ms=tick_ms)
        case SubscriptionType.KEY_SHARED:
            return KeySharedDispatcher(
                sticky=spec.is_sticky,
                allow_out_of_order=spec.allows_out_of_order,
                unacked_messages_max=unacked_max,
                tick_ms=tick_ms,
            )


def check_type(partition: Partition, kind: SubscriptionType, policies: Policies) -> None:
    """Raise SubscriptionNotAllowed if the topic may not have subscriptions of this type."""
    enabled, name = policies.subscription_types, SUBSCRIPTION_TYPES[kind.value]
    if enabled and name not in enabled:
        raise SubscriptionNotAllowed(
            f"Topic[{{{partition.topic.name.full}}}] doesn't support {name} sub type!"
        )


def check_fits(dispatcher: Dispatcher, spec: ConsumerSpec) -> None:
    """Whether one more consumer goes with those that the dispatcher has.

    Raises:
        SubscriptionBusy: it wants another type, or shares keys in another way.
    """
    if dispatcher.type is not spec.type:
        raise SubscriptionBusy("Subscription is of different type")
    if isinstance(dispatcher, KeySharedDispatcher) and (dispatcher.sticky, dispatcher.allow_out_of_order) != (
        spec.is_sticky,
        spec.allows_out_of_order,
    ):
        raise SubscriptionBusy("The subscription's consumers share keys in another way")
