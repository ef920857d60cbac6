import static org.apache.pulsar.client.api.SubscriptionType.Exclusive;
import static org.apache.pulsar.client.api.SubscriptionType.Shared;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.RegexSubscriptionMode;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Kinds of topics, and finding them. */
final class Topics {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("partitioned", Topics::partitioned),
            new Scenarios.Scenario("more_partitions", Topics::morePartitions),
            new Scenarios.Scenario("several_topics", Topics::severalTopics),
            new Scenarios.Scenario("pattern", Topics::pattern),
            new Scenarios.Scenario("non_persistent", Topics::nonPersistent),
            new Scenarios.Scenario("end_of_topic", Topics::endOfTopic),
            new Scenarios.Scenario("http_lookup", Topics::httpLookup),
            new Scenarios.Scenario("unload", Topics::unload),
            new Scenarios.Scenario("unsubscribe", Topics::unsubscribe),
            new Scenarios.Scenario("missing_namespace", Topics::missingNamespace));

    private static String path(World world) {
        return "persistent/public/default/" + world.topic;
    }

    private static void partitioned(World world) throws Exception {
        world.requestOk("PUT", path(world) + "/partitions", "3");
        World.equal(3, world.client.getPartitionsForTopic(world.topic, true).get().size(), "partitions");
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe();
                Producer<byte[]> producer = world.producer()) {
            for (int n = 0; n < 90; n++) {
                producer.newMessage().key("key-" + n % 9).value(World.bytes(n / 9)).send();
            }
            Map<String, Integer> following = new HashMap<>();
            Map<String, String> where = new HashMap<>();
            for (int n = 0; n < 90; n++) {
                Message<byte[]> message = World.receive(consumer);
                int number = following.merge(message.getKey(), 1, Integer::sum) - 1;
                World.equal(number, World.number(message), "the next message of " + message.getKey());
                String partition = where.putIfAbsent(message.getKey(), message.getTopicName());
                World.check(partition == null || partition.equals(message.getTopicName()), "a key moved");
                consumer.acknowledge(message);
            }
            World.equal(3, Set.copyOf(where.values()).size(), "partitions with messages");
        }
    }

    private static void morePartitions(World world) throws Exception {
        world.requestOk("PUT", path(world) + "/partitions", "1");
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive)
                        .autoUpdatePartitionsInterval(1, TimeUnit.SECONDS)
                        .subscribe();
                Producer<byte[]> producer = world.producer()) {
            producer.send(World.bytes(0));
            World.expect(consumer, 0, 1);
            world.requestOk("POST", path(world) + "/partitions", "3");
            world.sendTo(world.topic + "-partition-2", 1, 3);
            World.expect(consumer, 1, 3);
        }
    }

    private static void severalTopics(World world) throws Exception {
        List<String> topics = List.of(world.topic + "-a", world.topic + "-b", world.topic + "-c");
        try (Consumer<byte[]> consumer =
                world.client.newConsumer().topics(topics).subscriptionName("s").subscribe()) {
            Set<Integer> seen = new TreeSet<>();
            for (int n = 0; n < 3; n++) {
                world.sendTo(topics.get(n), 10 * n, 10 * n + 5);
            }
            for (int n = 0; n < 15; n++) {
                Message<byte[]> message = World.receive(consumer);
                seen.add(World.number(message));
                consumer.acknowledge(message);
            }
            World.equal(15, seen.size(), "different messages");
        }
    }

    /** Java asks for WATCH_TOPIC_LIST where the broker offers it: a new topic is seen long before the next poll. */
    private static void pattern(World world) throws Exception {
        world.sendTo(world.topic + "-one", 0, 1);
        try (Consumer<byte[]> consumer = world.client
                .newConsumer()
                .topicsPattern(Pattern.compile("persistent://public/default/" + world.topic + "-.*"))
                .patternAutoDiscoveryPeriod(60, TimeUnit.SECONDS)
                .subscriptionTopicsMode(RegexSubscriptionMode.PersistentOnly)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscriptionName("s")
                .subscribe()) {
            World.expect(consumer, 0, 1);
            world.sendTo(world.topic + "-two", 1, 2);
            World.expect(consumer, 1, 2);
        }
    }

    private static void nonPersistent(World world) throws Exception {
        String topic = "non-persistent://public/default/" + world.topic;
        world.sendTo(topic, 0, 1); // no consumer is there: dropped
        try (Consumer<byte[]> one = world.client.newConsumer().topic(topic).subscriptionName("s").subscribe();
                Consumer<byte[]> two = world.client
                        .newConsumer()
                        .topic(topic)
                        .subscriptionName("t")
                        .subscriptionType(Shared)
                        .subscribe()) {
            world.sendTo(topic, 1, 11);
            World.expect(one, 1, 11);
            World.expect(two, 1, 11);
        }
    }

    private static void endOfTopic(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe();
                Producer<byte[]> producer = world.producer()) {
            producer.send(World.bytes(0));
            world.requestOk("POST", path(world) + "/terminate", "");
            World.expect(consumer, 0, 1);
            World.eventually(consumer::hasReachedEndOfTopic, "the consumer hears that this was the end");
            World.expectFailure(PulsarClientException.class, () -> producer.send(World.bytes(1)));
        }
    }

    private static void httpLookup(World world) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(world.http).build();
                Consumer<byte[]> consumer =
                        client.newConsumer().topic(world.topic).subscriptionName("s").subscribe();
                Producer<byte[]> producer = client.newProducer().topic(world.topic).create()) {
            producer.send(World.bytes(0));
            World.expect(consumer, 0, 1);
        }
    }

    private static void unload(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Shared).subscribe();
                Producer<byte[]> producer = world.producer()) {
            producer.send(World.bytes(0));
            World.expect(consumer, 0, 1);
            world.requestOk("PUT", path(world) + "/unload", null);
            producer.send(World.bytes(1));
            World.expect(consumer, 1, 2);
        }
    }

    private static void unsubscribe(World world) throws Exception {
        Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe();
        world.send(0, 3);
        World.expect(consumer, 0, 2);
        consumer.unsubscribe();
        try (Consumer<byte[]> again = world.consumer("s", Exclusive).subscribe()) {
            World.expect(again, 0, 3);
        }
    }

    private static void missingNamespace(World world) {
        World.expectFailure(PulsarClientException.class, () -> world.client
                .newProducer()
                .topic("persistent://public/nowhere/t")
                .create());
    }
}
