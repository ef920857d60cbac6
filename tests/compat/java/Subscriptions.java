import static org.apache.pulsar.client.api.SubscriptionType.Exclusive;
import static org.apache.pulsar.client.api.SubscriptionType.Failover;
import static org.apache.pulsar.client.api.SubscriptionType.Shared;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;

/** Exclusive, Failover and Shared, and what happens to messages that are not acknowledged. */
final class Subscriptions {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("exclusive", Subscriptions::exclusive),
            new Scenarios.Scenario("failover", Subscriptions::failover),
            new Scenarios.Scenario("failover_partitioned", Subscriptions::failoverPartitioned),
            new Scenarios.Scenario("shared", Subscriptions::shared),
            new Scenarios.Scenario("shared_consumer_leaves", Subscriptions::sharedConsumerLeaves),
            new Scenarios.Scenario("priority_levels", Subscriptions::priorityLevels),
            new Scenarios.Scenario("type_mismatch", Subscriptions::typeMismatch),
            new Scenarios.Scenario("negative_ack", Subscriptions::negativeAck),
            new Scenarios.Scenario("ack_timeout", Subscriptions::ackTimeout),
            new Scenarios.Scenario("dead_letter", Subscriptions::deadLetter),
            new Scenarios.Scenario("retry_letter", Subscriptions::retryLetter),
            new Scenarios.Scenario("batch_index_ack", Subscriptions::batchIndexAck),
            new Scenarios.Scenario("ack_receipt", Subscriptions::ackReceipt));

    private static void exclusive(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe();
                PulsarClient other = world.newClient()) {
            expectBusy(world, other);
            world.send(0, 10);
            World.expect(consumer, 0, 5);
        }
        try (Consumer<byte[]> again = world.consumer("s", Exclusive).subscribe()) {
            World.expect(again, 5, 10);
            World.expectSilence(again);
        }
    }

    private static void expectBusy(World world, PulsarClient other) {
        World.expectFailure(PulsarClientException.ConsumerBusyException.class, () -> other.newConsumer()
                .topic(world.topic)
                .subscriptionName("s")
                .subscribe());
    }

    /** Which consumers have been told that they are the active one of a partition. */
    private static final class Active implements ConsumerEventListener {
        final Set<String> names = ConcurrentHashMap.newKeySet();
        final Set<String> told = ConcurrentHashMap.newKeySet();

        @Override
        public void becameActive(Consumer<?> consumer, int partition) {
            names.add(consumer.getConsumerName() + "/" + partition);
            told.add(consumer.getConsumerName());
        }

        @Override
        public void becameInactive(Consumer<?> consumer, int partition) {
            names.remove(consumer.getConsumerName() + "/" + partition);
            told.add(consumer.getConsumerName());
        }
    }

    private static void failover(World world) throws Exception {
        Active active = new Active();
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            consumers.add(world.consumer("s", Failover)
                    .consumerName("c" + n)
                    .consumerEventListener(active)
                    .subscribe());
        }
        World.eventually(
                () -> active.told.size() == 2 && active.names.size() == 1, "both know which one is active");
        boolean firstIsActive = active.names.iterator().next().startsWith("c0");
        Consumer<byte[]> on = consumers.get(firstIsActive ? 0 : 1);
        Consumer<byte[]> off = consumers.get(firstIsActive ? 1 : 0);
        world.send(0, 20);
        World.expect(on, 0, 12);
        World.expectSilence(off);
        on.close();
        World.expect(off, 12, 20);
        off.close();
    }

    private static void failoverPartitioned(World world) throws Exception {
        world.requestOk("PUT", "persistent/public/default/" + world.topic + "/partitions", "4");
        Active active = new Active();
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            consumers.add(world.consumer("s", Failover)
                    .consumerName("c" + n)
                    .consumerEventListener(active)
                    .subscribe());
        }
        World.eventually(
                () -> active.names.equals(Set.of("c0/0", "c1/1", "c0/2", "c1/3")),
                "the partitions are dealt out by name");
        world.send(0, 40);
        Set<Integer> seen = new TreeSet<>();
        for (Consumer<byte[]> consumer : consumers) {
            for (int n = 0; n < 20; n++) {
                Message<byte[]> message = World.receive(consumer);
                seen.add(World.number(message));
                consumer.acknowledge(message);
            }
            consumer.close();
        }
        World.equal(40, seen.size(), "different messages");
    }

    private static void shared(World world) throws Exception {
        List<Consumer<byte[]>> consumers = new ArrayList<>();
        for (int n = 0; n < 3; n++) {
            consumers.add(world.consumer("s", Shared).receiverQueueSize(10).subscribe());
        }
        world.send(0, 120);
        Map<Integer, Integer> seen = new HashMap<>();
        Set<String> busy = new TreeSet<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(World.WAIT_S);
        while (seen.size() < 120 && System.nanoTime() < deadline) {
            for (Consumer<byte[]> consumer : consumers) {
                Message<byte[]> message = consumer.receive(10, TimeUnit.MILLISECONDS);
                if (message != null) {
                    seen.merge(World.number(message), 1, Integer::sum);
                    busy.add(consumer.getConsumerName());
                    consumer.acknowledge(message);
                }
            }
        }
        World.equal(120, seen.size(), "different messages");
        World.check(seen.values().stream().allMatch(times -> times == 1), "a message came twice");
        World.equal(3, busy.size(), "consumers that got some");
        for (Consumer<byte[]> consumer : consumers) {
            consumer.close();
        }
    }

    private static void sharedConsumerLeaves(World world) throws Exception {
        Consumer<byte[]> leaving = world.consumer("s", Shared).subscribe();
        world.send(0, 10);
        for (int n = 0; n < 10; n++) {
            World.equal(0, World.receive(leaving).getRedeliveryCount(), "the redelivery count");
        }
        Consumer<byte[]> staying = world.consumer("s", Shared).subscribe();
        leaving.close();
        Set<Integer> seen = new TreeSet<>();
        for (int n = 0; n < 10; n++) {
            Message<byte[]> message = World.receive(staying);
            // Apache Pulsar counts what consumers ask for again, not what they leave behind.
            World.equal(0, message.getRedeliveryCount(), "the redelivery count");
            seen.add(World.number(message));
            staying.acknowledge(message);
        }
        World.equal(10, seen.size(), "different messages");
        staying.close();
    }

    private static void priorityLevels(World world) throws Exception {
        Consumer<byte[]> low = world.consumer("s", Shared).priorityLevel(1).subscribe();
        Consumer<byte[]> high =
                world.consumer("s", Shared).priorityLevel(0).receiverQueueSize(10).subscribe();
        world.send(0, 10);
        World.expect(high, 0, 10);
        World.expectSilence(low);
        low.close();
        high.close();
    }

    private static void typeMismatch(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Shared).subscribe()) {
            World.check(consumer.isConnected(), "connected");
            World.expectFailure(
                    PulsarClientException.ConsumerBusyException.class,
                    () -> world.consumer("s", Failover).subscribe());
        }
        world.consumer("s", Failover).subscribe().close();
    }

    private static void negativeAck(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Shared)
                .negativeAckRedeliveryDelay(300, TimeUnit.MILLISECONDS)
                .subscribe()) {
            world.send(0, 6);
            for (int n = 0; n < 6; n++) {
                Message<byte[]> message = World.receive(consumer);
                if (World.number(message) % 2 == 0) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            for (int times = 1; times <= 2; times++) {
                Set<Integer> seen = new TreeSet<>();
                for (int n = 0; n < 3; n++) {
                    Message<byte[]> message = World.receive(consumer);
                    World.equal(times, message.getRedeliveryCount(), "the redelivery count");
                    seen.add(World.number(message));
                    if (times == 1) {
                        consumer.negativeAcknowledge(message);
                    } else {
                        consumer.acknowledge(message);
                    }
                }
                World.equal(Set.of(0, 2, 4), seen, "what came again");
            }
            World.expectSilence(consumer);
        }
    }

    private static void ackTimeout(World world) throws Exception {
        try (Consumer<byte[]> consumer =
                world.consumer("s", Shared).ackTimeout(1, TimeUnit.SECONDS).subscribe()) {
            world.send(0, 2);
            World.receive(consumer);
            consumer.acknowledge(World.receive(consumer));
            Message<byte[]> again = World.receive(consumer);
            World.equal(0, World.number(again), "what came again");
            consumer.acknowledge(again);
            World.expectSilence(consumer);
        }
    }

    private static void deadLetter(World world) throws Exception {
        String dead = world.topic + "-dead";
        try (Consumer<byte[]> consumer = world.consumer("s", Shared)
                        .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                        .deadLetterPolicy(DeadLetterPolicy.builder()
                                .maxRedeliverCount(2)
                                .deadLetterTopic(dead)
                                .initialSubscriptionName("kept")
                                .build())
                        .subscribe();
                PulsarClient other = world.newClient()) {
            world.send(0, 2);
            for (int n = 0; n < 6; n++) { // each is tried three times
                consumer.negativeAcknowledge(World.receive(consumer));
            }
            World.expectSilence(consumer);
            try (Consumer<byte[]> undertaker =
                    other.newConsumer().topic(dead).subscriptionName("kept").subscribe()) {
                Set<Integer> seen = new TreeSet<>();
                for (int n = 0; n < 2; n++) {
                    Message<byte[]> message = World.receive(undertaker);
                    World.check(message.getProperty("REAL_TOPIC").contains(world.topic), "REAL_TOPIC");
                    seen.add(World.number(message));
                }
                World.equal(Set.of(0, 1), seen, "dead letters");
            }
        }
    }

    private static void retryLetter(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Shared)
                        .enableRetry(true)
                        .deadLetterPolicy(DeadLetterPolicy.builder()
                                .maxRedeliverCount(2)
                                .build())
                        .subscribe();
                Consumer<byte[]> undertaker = world.client
                        .newConsumer()
                        .topic(world.topic + "-s-DLQ")
                        .subscriptionName("u")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            world.send(0, 1);
            for (int times = 0; times < 3; times++) {
                Message<byte[]> message = World.receive(consumer);
                World.equal(
                        times == 0 ? null : Integer.toString(times),
                        message.getProperty("RECONSUMETIMES"),
                        "RECONSUMETIMES");
                consumer.reconsumeLater(message, 200, TimeUnit.MILLISECONDS);
            }
            World.equal(0, World.number(World.receive(undertaker)), "the dead letter");
        }
    }

    private static void batchIndexAck(World world) throws Exception {
        try (Consumer<byte[]> consumer =
                world.consumer("s", Shared).enableBatchIndexAcknowledgment(true).subscribe()) {
            world.sendBatched(0, 10);
            for (int n = 0; n < 10; n++) {
                Message<byte[]> message = World.receive(consumer);
                if (n % 3 != 0) {
                    consumer.acknowledge(message);
                }
            }
        }
        try (Consumer<byte[]> again =
                world.consumer("s", Shared).enableBatchIndexAcknowledgment(true).subscribe()) {
            for (int n = 0; n < 10; n += 3) {
                Message<byte[]> message = World.receive(again);
                World.equal(n, World.number(message), "what was left");
                again.acknowledge(message);
            }
            World.expectSilence(again);
        }
    }

    private static void ackReceipt(World world) throws Exception {
        try (Consumer<byte[]> consumer =
                        world.consumer("s", Shared).isAckReceiptEnabled(true).subscribe();
                Producer<byte[]> producer = world.producer()) {
            producer.send(World.bytes(1));
            Message<byte[]> message = World.receive(consumer);
            consumer.acknowledgeAsync(message).get(World.WAIT_S, TimeUnit.SECONDS);
            consumer.acknowledgeAsync(message).get(World.WAIT_S, TimeUnit.SECONDS);
        }
    }
}
