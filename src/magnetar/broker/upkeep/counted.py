"""The source of rates: the totals of all objects that count their messages."""

from collections.abc import Iterable, Iterator
from itertools import chain

from magnetar.broker.log.rates import Count
from magnetar.broker.producers.admission import Producers
from magnetar.broker.subscriptions.consumer import SubscribedConsumer
from magnetar.broker.subscriptions.registry import Subscriptions
from magnetar.broker.topics.registry import TopicRegistry


def counted(topics: TopicRegistry, producers: Producers, subscriptions: Subscriptions) -> Iterator[Count]:
    """The totals of open partitions, and of their producers and consumers."""
    for topic in topics:
        for partition in topic.open_partitions:
            log = partition.log
            consumers: list[Iterable[SubscribedConsumer]]
            consumers = [one.consumers for one in subscriptions.of(partition)]
            consumers += [one.consumers for one in subscriptions.volatile(partition)]
            yield Count(partition, partition.messages_in, log.appended_bytes)
            for producer in producers.find(partition) or ():
                yield Count(producer, producer.messages_in, producer.bytes_in)
            for consumer in chain.from_iterable(consumers):
                yield Count(consumer, consumer.messages_out, consumer.bytes_out)
