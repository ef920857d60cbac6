import static org.apache.pulsar.client.api.SubscriptionType.Exclusive;
import static org.apache.pulsar.client.api.SubscriptionType.Failover;
import static org.apache.pulsar.client.api.SubscriptionType.Shared;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;

/** Chunks, delays, compression, access modes, sequence ids, schemas. */
final class Features {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("chunking", Features::chunking),
            new Scenarios.Scenario("chunking_shared", Features::chunkingShared),
            new Scenarios.Scenario("delayed_delivery", Features::delayedDelivery),
            new Scenarios.Scenario("delay_is_for_shared_only", Features::delayIsForSharedOnly),
            new Scenarios.Scenario("compression", Features::compression),
            new Scenarios.Scenario("exclusive_producer", Features::exclusiveProducer),
            new Scenarios.Scenario("producer_that_waits", Features::producerThatWaits),
            new Scenarios.Scenario("producer_that_fences", Features::producerThatFences),
            new Scenarios.Scenario("producer_name_clash", Features::producerNameClash),
            new Scenarios.Scenario("deduplication", Features::deduplication),
            new Scenarios.Scenario("schema_json", world -> pojo(world, Schema.JSON(Order.class))),
            new Scenarios.Scenario("schema_avro", world -> pojo(world, Schema.AVRO(Order.class))),
            new Scenarios.Scenario("schema_key_value", Features::keyValue),
            new Scenarios.Scenario("schema_incompatible", Features::incompatible));

    /** A class with getters would be longer and say no more: both schemas read fields. */
    public static final class Order {
        public String customer;
        public int amount;
    }

    public static final class OtherOrder {
        public int customer;
        public String amount;
    }

    private static byte[] large(int size) {
        byte[] data = new byte[size];
        new Random(20261121).nextBytes(data);
        return data;
    }

    private static Producer<byte[]> chunking(World world, String name) throws PulsarClientException {
        return world.client
                .newProducer()
                .topic(world.topic)
                .producerName(name)
                .enableBatching(false)
                .enableChunking(true)
                .create();
    }

    private static void chunking(World world) throws Exception {
        byte[] data = large(11 << 20);
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe();
                Producer<byte[]> producer = chunking(world, "one")) {
            producer.send(World.bytes(0));
            producer.newMessage().key("k").property("p", "v").value(data).send();
            producer.send(World.bytes(2));
            World.expect(consumer, 0, 1);
            Message<byte[]> message = World.receive(consumer);
            World.check(Arrays.equals(data, message.getData()), "the content differs");
            World.equal("v", message.getProperty("p"), "the property");
            World.equal("k", message.getKey(), "the key");
            consumer.acknowledge(message);
            World.expect(consumer, 2, 3);
        }
        try (Consumer<byte[]> again = world.consumer("s", Exclusive).subscribe()) {
            World.expectSilence(again);
        }
    }

    private static void chunkingShared(World world) throws Exception {
        byte[] data = large(6 << 20);
        try (Consumer<byte[]> one = world.consumer("s", Shared).subscribe();
                Consumer<byte[]> two = world.consumer("s", Shared).subscribe();
                Producer<byte[]> producer = chunking(world, "one");
                Producer<byte[]> other = chunking(world, "two")) {
            List<CompletableFuture<?>> sent = new ArrayList<>();
            for (int n = 0; n < 3; n++) {
                sent.add(producer.sendAsync(data));
                sent.add(other.sendAsync(data));
            }
            CompletableFuture.allOf(sent.toArray(new CompletableFuture<?>[0])).get(World.WAIT_S, TimeUnit.SECONDS);
            int seen = 0;
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(World.WAIT_S);
            while (seen < 6 && System.nanoTime() < deadline) {
                for (Consumer<byte[]> consumer : List.of(one, two)) {
                    Message<byte[]> message = consumer.receive(100, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        World.check(Arrays.equals(data, message.getData()), "the content differs");
                        consumer.acknowledge(message);
                        seen++;
                    }
                }
            }
            World.equal(6, seen, "whole messages");
        }
    }

    private static void delayedDelivery(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Shared).subscribe();
                Producer<byte[]> producer = world.producer()) {
            long began = System.currentTimeMillis();
            producer.newMessage().value(World.bytes(2)).deliverAfter(5, TimeUnit.SECONDS).send();
            producer.newMessage().value(World.bytes(1)).deliverAt(began + 1500).send();
            producer.send(World.bytes(0));
            long[] earliest = {0, 1500, 5000};
            for (int n = 0; n < 3; n++) {
                Message<byte[]> message = World.receive(consumer);
                World.equal(n, World.number(message), "the next message");
                long waited = System.currentTimeMillis() - began;
                // The broker ticks once a second and may deliver one tick early, as Apache Pulsar does.
                World.check(waited >= earliest[n] - 1000, n + " came after " + waited + " ms");
                consumer.acknowledge(message);
            }
        }
    }

    private static void delayIsForSharedOnly(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Failover).subscribe();
                Producer<byte[]> producer = world.producer()) {
            producer.newMessage().value(World.bytes(0)).deliverAfter(1, TimeUnit.HOURS).send();
            World.expect(consumer, 0, 1);
        }
    }

    private static void compression(World world) throws Exception {
        String text = "magnetar ".repeat(500);
        try (Consumer<String> consumer = world.client
                .newConsumer(Schema.STRING)
                .topic(world.topic)
                .subscriptionName("s")
                .subscribe()) {
            for (CompressionType type : CompressionType.values()) {
                for (boolean batched : new boolean[] {false, true}) {
                    try (Producer<String> producer = world.client
                            .newProducer(Schema.STRING)
                            .topic(world.topic)
                            .compressionType(type)
                            .enableBatching(batched)
                            .create()) {
                        for (int n = 0; n < 10; n++) {
                            producer.sendAsync(text + type + n);
                        }
                        producer.flush();
                    }
                    for (int n = 0; n < 10; n++) {
                        Message<String> message = World.receive(consumer);
                        World.check(message.getValue().equals(text + type + n), type + " " + n);
                        consumer.acknowledge(message);
                    }
                }
            }
        }
    }

    private static ProducerBuilder<byte[]> producer(World world, ProducerAccessMode mode) {
        return world.client.newProducer().topic(world.topic).accessMode(mode).enableBatching(false);
    }

    private static void exclusiveProducer(World world) throws Exception {
        try (Producer<byte[]> only = producer(world, ProducerAccessMode.Exclusive).create()) {
            World.expectFailure(
                    PulsarClientException.ProducerFencedException.class,
                    () -> producer(world, ProducerAccessMode.Exclusive).create());
            World.expectFailure(
                    PulsarClientException.ProducerBusyException.class,
                    () -> producer(world, ProducerAccessMode.Shared).create());
            only.send(World.bytes(1));
        }
        producer(world, ProducerAccessMode.Exclusive).create().close();
    }

    private static void producerThatWaits(World world) throws Exception {
        Producer<byte[]> first = producer(world, ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<byte[]>> waiting =
                producer(world, ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(World.SILENCE_MS);
        World.check(!waiting.isDone(), "it did not wait");
        first.close();
        try (Producer<byte[]> second = waiting.get(World.WAIT_S, TimeUnit.SECONDS)) {
            second.send(World.bytes(1));
        }
    }

    private static void producerThatFences(World world) throws Exception {
        try (Producer<byte[]> first = producer(world, ProducerAccessMode.Exclusive).create();
                Producer<byte[]> second =
                        producer(world, ProducerAccessMode.ExclusiveWithFencing).create()) {
            second.send(World.bytes(1));
            World.expectFailure(PulsarClientException.class, () -> first.send(World.bytes(2)));
            second.send(World.bytes(3));
        }
    }

    private static void producerNameClash(World world) throws Exception {
        try (Producer<byte[]> named = world.client.newProducer().topic(world.topic).producerName("n").create()) {
            World.expectFailure(
                    PulsarClientException.ProducerBusyException.class,
                    () -> world.client.newProducer().topic(world.topic).producerName("n").create());
            named.send(World.bytes(1));
        }
    }

    private static void deduplication(World world) throws Exception {
        String namespace = "public/dedup-" + Long.toHexString(System.nanoTime());
        world.requestOk("PUT", "namespaces/" + namespace, "{\"replication_clusters\":[\"standalone\"]}");
        world.requestOk("POST", "namespaces/" + namespace + "/deduplication", "true");
        String topic = "persistent://" + namespace + "/t";
        try (Consumer<byte[]> consumer =
                world.client.newConsumer().topic(topic).subscriptionName("s").subscribe()) {
            for (int round = 0; round < 2; round++) {
                try (Producer<byte[]> producer = world.client
                        .newProducer()
                        .topic(topic)
                        .producerName("p")
                        .sendTimeout(0, TimeUnit.SECONDS)
                        .enableBatching(false)
                        .create()) {
                    World.equal(round == 0 ? -1L : 9L, producer.getLastSequenceId(), "the last sequence id");
                    for (int n = 0; n < 10 + 5 * round; n++) {
                        producer.newMessage().sequenceId(n).value(World.bytes(n)).send();
                    }
                }
            }
            World.expect(consumer, 0, 15);
            World.expectSilence(consumer);
        }
    }

    private static void pojo(World world, Schema<Order> schema) throws Exception {
        Order order = new Order();
        order.customer = "alice";
        order.amount = 7;
        try (Producer<Order> producer = world.client.newProducer(schema).topic(world.topic).create();
                Consumer<Order> typed = typed(world, schema, "s").subscribe();
                Consumer<GenericRecord> any = typed(world, Schema.AUTO_CONSUME(), "t").subscribe();
                Producer<byte[]> raw =
                        world.client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(world.topic).create()) {
            producer.send(order);
            raw.send(schema.encode(order));
            for (int n = 0; n < 2; n++) {
                Message<Order> message = World.receive(typed);
                World.equal("alice", message.getValue().customer, "the name");
                World.equal(7, message.getValue().amount, "the amount");
                World.equal("alice", World.receive(any).getValue().getField("customer"), "the generic name");
            }
        }
    }

    private static <T> ConsumerBuilder<T> typed(World world, Schema<T> schema, String subscription) {
        return world.client.newConsumer(schema).topic(world.topic).subscriptionName(subscription);
    }

    private static void keyValue(World world) throws Exception {
        Schema<KeyValue<String, Integer>> schema =
                Schema.KeyValue(Schema.STRING, Schema.INT32, KeyValueEncodingType.SEPARATED);
        try (Consumer<KeyValue<String, Integer>> consumer = typed(world, schema, "s").subscribe();
                Producer<KeyValue<String, Integer>> producer =
                        world.client.newProducer(schema).topic(world.topic).create()) {
            producer.send(new KeyValue<>("key", 42));
            KeyValue<String, Integer> found = World.receive(consumer).getValue();
            World.equal("key", found.getKey(), "the key");
            World.equal(42, found.getValue(), "the value");
        }
    }

    private static void incompatible(World world) throws Exception {
        world.client.newProducer(Schema.AVRO(Order.class)).topic(world.topic).create().close();
        World.expectFailure(
                PulsarClientException.IncompatibleSchemaException.class,
                () -> world.client.newProducer(Schema.AVRO(OtherOrder.class)).topic(world.topic).create());
        World.expectFailure(
                PulsarClientException.IncompatibleSchemaException.class,
                () -> typed(world, Schema.AVRO(OtherOrder.class), "s").subscribe());
    }
}
