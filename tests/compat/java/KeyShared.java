import static org.apache.pulsar.client.api.SubscriptionType.Key_Shared;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;

/** Key_Shared: the order of each key, and one consumer at a time for each, while consumers come and go. */
final class KeyShared {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("key_shared_joining_and_leaving", world -> comeAndGo(world, false)),
            new Scenarios.Scenario("key_shared_batches_joining_and_leaving", world -> comeAndGo(world, true)),
            new Scenarios.Scenario("key_shared_drains_before_it_moves", KeyShared::drains),
            new Scenarios.Scenario("key_shared_sticky", KeyShared::sticky));

    private static final int KEYS = 24;

    /** A consumer that holds what it received for a while: the keys of these messages are its own. */
    private static final class Holder {
        final Consumer<byte[]> consumer;
        final Deque<Message<byte[]>> held = new ArrayDeque<>();

        Holder(Consumer<byte[]> consumer) {
            this.consumer = consumer;
        }
    }

    private static void comeAndGo(World world, boolean batched) throws Exception {
        Random choose = new Random(20261121);
        List<Holder> holders = new ArrayList<>();
        for (int n = 0; n < 2; n++) {
            holders.add(join(world, n));
        }
        int total = 1500;
        try (Producer<byte[]> producer = producer(world, batched)) {
            for (int n = 0; n < total; n++) {
                producer.newMessage().key("key-" + n % KEYS).value(World.bytes(n / KEYS)).sendAsync();
            }
            producer.flush();
        }
        Map<String, Integer> acknowledged = new TreeMap<>(); // key -> how many
        int done = 0;
        int steps = 0;
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (done < total) {
            World.check(System.nanoTime() < deadline, done + " of " + total + " messages were processed");
            steps++;
            if (steps % 150 == 0 && holders.size() < 6) {
                holders.add(join(world, steps));
            } else if (steps % 230 == 0 && holders.size() > 1) {
                // It leaves with messages unacknowledged: they go to others, in order.
                holders.remove(choose.nextInt(holders.size())).consumer.close();
            }
            Holder holder = holders.get(choose.nextInt(holders.size()));
            take(holder, holders);
            for (int n = choose.nextInt(25); n > 0 && !holder.held.isEmpty(); n--) {
                Message<byte[]> message = holder.held.poll();
                int following = acknowledged.merge(message.getKey(), 1, Integer::sum) - 1;
                World.equal(following, World.number(message), "the next message of " + message.getKey());
                holder.consumer.acknowledge(message);
                done++;
            }
        }
        for (Holder holder : holders) {
            World.equal(null, holder.consumer.receive(50, TimeUnit.MILLISECONDS), "after the last message");
            holder.consumer.close();
        }
    }

    private static void take(Holder holder, List<Holder> all) throws PulsarClientException {
        for (int n = 0; n < 20; n++) {
            Message<byte[]> message = holder.consumer.receive(1, TimeUnit.MILLISECONDS);
            if (message == null) {
                return;
            }
            for (Holder other : all) {
                World.check(
                        other == holder
                                || other.held.stream().noneMatch(held -> held.getKey().equals(message.getKey())),
                        message.getKey() + " is unacknowledged at two consumers");
            }
            holder.held.add(message);
        }
    }

    private static Holder join(World world, int number) throws PulsarClientException {
        return new Holder(world.consumer("s", Key_Shared)
                .consumerName("c" + number)
                .receiverQueueSize(30)
                .subscribe());
    }

    private static Producer<byte[]> producer(World world, boolean batched) throws PulsarClientException {
        return world.client
                .newProducer()
                .topic(world.topic)
                .enableBatching(batched)
                .batcherBuilder(BatcherBuilder.KEY_BASED)
                .batchingMaxMessages(200)
                .blockIfQueueFull(true)
                .create();
    }

    /** PIP-379: a key whose consumer changes waits until the old one has acknowledged all it has of it. */
    private static void drains(World world) throws Exception {
        try (Consumer<byte[]> first = world.consumer("s", Key_Shared).consumerName("first").subscribe();
                Producer<byte[]> producer = world.producer()) {
            send(producer, 0);
            List<Message<byte[]>> old = new ArrayList<>();
            for (int n = 0; n < KEYS; n++) {
                old.add(World.receive(first));
            }
            try (Consumer<byte[]> second =
                    world.consumer("s", Key_Shared).consumerName("second").subscribe()) {
                send(producer, 1);
                World.expectSilence(second);
                Map<String, Integer> atFirst = new HashMap<>();
                Message<byte[]> next;
                while ((next = first.receive(World.SILENCE_MS, TimeUnit.MILLISECONDS)) != null) {
                    atFirst.put(next.getKey(), World.number(next));
                    first.acknowledge(next);
                }
                World.check(atFirst.size() < KEYS, "the second consumer owns no key");
                for (Message<byte[]> message : old) {
                    first.acknowledge(message);
                }
                for (int n = atFirst.size(); n < KEYS; n++) {
                    Message<byte[]> message = World.receive(second);
                    World.check(!atFirst.containsKey(message.getKey()), "a key at both");
                    World.equal(1, World.number(message), "the second round");
                    second.acknowledge(message);
                }
            }
        }
    }

    private static void send(Producer<byte[]> producer, int round) throws PulsarClientException {
        for (int n = 0; n < KEYS; n++) {
            producer.newMessage().key("key-" + n).value(World.bytes(round)).send();
        }
    }

    private static void sticky(World world) throws Exception {
        Consumer<byte[]> low = sticky(world, 0, 32767);
        World.expectFailure(
                PulsarClientException.ConsumerAssignException.class, () -> sticky(world, 30000, 40000));
        Consumer<byte[]> high = sticky(world, 32768, 65535);
        try (Producer<byte[]> producer = world.producer()) {
            for (int n = 0; n < 200; n++) {
                producer.newMessage().key("key-" + n).value(World.bytes(n)).send();
            }
        }
        int seen = 0;
        for (Consumer<byte[]> consumer : List.of(low, high)) {
            Message<byte[]> message;
            while ((message = consumer.receive(World.SILENCE_MS, TimeUnit.MILLISECONDS)) != null) {
                int slot = slot(message.getKey());
                World.equal(consumer == low, slot <= 32767, "slot " + slot + " at " + message.getKey());
                consumer.acknowledge(message);
                seen++;
            }
        }
        World.equal(200, seen, "messages");
        low.close();
        high.close();
    }

    private static Consumer<byte[]> sticky(World world, int from, int to) throws PulsarClientException {
        return world.consumer("s", Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(from, to)))
                .subscribe();
    }

    /** Murmur3 (x86, 32 bits, seed 0), cut to 31 bits, modulo 65536; 0 is no slot. */
    private static int slot(String key) {
        int slot = (murmur3(key.getBytes(StandardCharsets.UTF_8)) & Integer.MAX_VALUE) % 65536;
        return slot == 0 ? 1 : slot;
    }

    private static int murmur3(byte[] data) {
        int hash = 0;
        int at = 0;
        for (; at + 4 <= data.length; at += 4) {
            int word = (data[at] & 255) | (data[at + 1] & 255) << 8 | (data[at + 2] & 255) << 16 | data[at + 3] << 24;
            hash = Integer.rotateLeft(hash ^ scramble(word), 13) * 5 + 0xe6546b64;
        }
        int rest = 0;
        for (int n = data.length - 1; n >= at; n--) {
            rest = rest << 8 | (data[n] & 255);
        }
        hash ^= scramble(rest);
        hash ^= data.length;
        hash = (hash ^ hash >>> 16) * 0x85ebca6b;
        hash = (hash ^ hash >>> 13) * 0xc2b2ae35;
        return hash ^ hash >>> 16;
    }

    private static int scramble(int word) {
        return Integer.rotateLeft(word * 0xcc9e2d51, 15) * 0x1b873593;
    }
}
