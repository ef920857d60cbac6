import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.v5.Checkpoint;
import org.apache.pulsar.client.api.v5.Message;
import org.apache.pulsar.client.api.v5.MessageId;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.PulsarClientException;
import org.apache.pulsar.client.api.v5.QueueConsumer;
import org.apache.pulsar.client.api.v5.StreamConsumer;
import org.apache.pulsar.client.api.v5.Transaction;
import org.apache.pulsar.client.api.v5.config.BackoffPolicy;
import org.apache.pulsar.client.api.v5.config.DeadLetterPolicy;
import org.apache.pulsar.client.api.v5.config.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.v5.config.TransactionPolicy;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Runs scenarios of Pulsar 5's client (V5) one after another against a broker, on topics that are not scalable.
 *
 * Usage: V5 SERVICE_URL HTTP_URL [PART_OF_A_NAME...]. One line for each: PASSED|FAILED name seconds text.
 * Everything that went wrong goes to standard error in full.
 */
public final class V5 {
    static final Duration WAIT = Duration.ofSeconds(20);
    static final Duration SILENCE = Duration.ofMillis(700);

    interface Body {
        void run(V5 world) throws Exception;
    }

    final PulsarClient client;
    final String url;
    final String http;
    final String topic;

    private V5(PulsarClient client, String url, String http, String name) {
        this.client = client;
        this.url = url;
        this.http = http;
        this.topic = "persistent://public/default/v5-" + name.replace('_', '-') + "-" + Long.toHexString(System.nanoTime());
    }

    public static void main(String[] words) throws Exception {
        Map<String, Body> all = new LinkedHashMap<>();
        all.put("produce_and_queue", V5::produceAndQueue);
        all.put("short_name", V5::shortName);
        all.put("queue_is_shared", V5::queueIsShared);
        all.put("queue_given_back", V5::queueGivenBack);
        all.put("queue_dead_letters", V5::queueDeadLetters);
        all.put("stream_continues", V5::streamContinues);
        all.put("stream_of_partitions", V5::streamOfPartitions);
        all.put("stream_is_shared", V5::streamIsShared);
        all.put("keys_as_in_v4", V5::keysAsInV4);
        all.put("partitions_added", V5::partitionsAdded);
        all.put("read_by_v4", V5::readByV4);
        all.put("written_by_v4", V5::writtenByV4);
        all.put("transactions", V5::transactions);
        all.put("checkpoints", V5::checkpoints);
        all.put("checkpoints_of_group", V5::checkpointsOfGroup);
        all.put("topic_is_missing", V5::topicIsMissing);
        all.put("scalable_topic", V5::scalableTopic);
        all.put("topics_of_namespace", V5::topicsOfNamespace);
        List<String> wanted = List.of(words).subList(2, words.length);
        for (Map.Entry<String, Body> one : all.entrySet()) {
            if (wanted.isEmpty() || wanted.stream().anyMatch(one.getKey()::contains)) {
                runOne(one.getKey(), one.getValue(), words[0], words[1]);
            }
        }
        System.out.println("DONE");
        System.out.flush();
        System.exit(0); // a client that hangs leaves threads behind
    }

    private static void runOne(String name, Body body, String url, String http) {
        long began = System.nanoTime();
        String status = "PASSED";
        String text = "";
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).operationTimeout(WAIT).build()) {
            body.run(new V5(client, url, http, name));
        } catch (Throwable error) {
            status = "FAILED";
            StringWriter trace = new StringWriter();
            error.printStackTrace(new PrintWriter(trace));
            System.err.println(name + ": " + trace);
            text = String.valueOf(error).lines().findFirst().orElse("");
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(Locale.ROOT, "%s %s %.1f %s%n", status, name, seconds, text);
        System.out.flush();
    }

    // --- what scenarios have ------------------------------------------------------------------------------------------

    static void equal(Object wanted, Object found) {
        if (!Objects.equals(wanted, found)) {
            throw new AssertionError("wanted " + wanted + ", found " + found);
        }
    }

    static List<String> values(String prefix, int count) {
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            found.add(prefix + i);
        }
        return found;
    }

    void ask(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(http + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        equal(2, answer.statusCode() / 100);
    }

    String path() {
        return topic.replace("://", "/");
    }

    void partitioned(int count) throws Exception {
        ask("PUT", path() + "/partitions", String.valueOf(count));
    }

    Producer<String> producer() throws Exception {
        return client.newProducer(Schema.string()).topic(topic).create();
    }

    QueueConsumer<String> queue(String subscription) throws Exception {
        return client.newQueueConsumer(Schema.string())
                .topic(topic)
                .subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe();
    }

    StreamConsumer<String> stream(PulsarClient client, String subscription) throws Exception {
        return client.newStreamConsumer(Schema.string())
                .topic(topic)
                .subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .subscribe();
    }

    void send(List<String> values) throws Exception {
        try (Producer<String> producer = producer()) {
            for (String value : values) {
                producer.newMessage().key(value).value(value).send();
            }
        }
    }

    static Message<String> next(QueueConsumer<String> consumer) throws Exception {
        Message<String> found = consumer.receive(WAIT);
        if (found == null) {
            throw new AssertionError("no message within " + WAIT);
        }
        return found;
    }

    static List<String> take(QueueConsumer<String> consumer, int count) throws Exception {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            Message<String> message = next(consumer);
            consumer.acknowledge(message.id());
            found.add(message.value());
        }
        return found;
    }

    static List<Message<String>> take(StreamConsumer<String> consumer, int count) throws Exception {
        List<Message<String>> found = new ArrayList<>();
        while (found.size() < count) {
            Message<String> message = consumer.receive(WAIT);
            if (message == null) {
                throw new AssertionError("no message within " + WAIT + " behind " + found.size());
            }
            found.add(message);
        }
        return found;
    }

    static List<String> valuesOf(List<Message<String>> messages) {
        return messages.stream().map(Message::value).toList();
    }

    org.apache.pulsar.client.api.PulsarClient v4() throws Exception {
        return org.apache.pulsar.client.api.PulsarClient.builder().serviceUrl(url).build();
    }

    static String refusal(Body body, V5 world) throws Exception {
        try {
            body.run(world);
        } catch (PulsarClientException error) {
            return String.valueOf(error);
        }
        throw new AssertionError("it was not refused");
    }

    // --- the scenarios ------------------------------------------------------------------------------------------------

    void produceAndQueue() throws Exception {
        send(values("m", 20));
        try (QueueConsumer<String> consumer = queue("s")) {
            equal(values("m", 20), take(consumer, 20));
            equal(null, consumer.receive(SILENCE));
        }
        try (QueueConsumer<String> consumer = queue("s")) {
            equal(null, consumer.receive(SILENCE)); // acknowledged
        }
    }

    void shortName() throws Exception {
        String name = topic.substring(topic.lastIndexOf('/') + 1);
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(name).create()) {
            producer.newMessage().value("one").send();
        }
        try (QueueConsumer<String> consumer = queue("s")) {
            equal(List.of("one"), take(consumer, 1));
        }
    }

    void queueIsShared() throws Exception {
        partitioned(2);
        try (QueueConsumer<String> first = queue("s");
                QueueConsumer<String> second = queue("s")) {
            send(values("m", 100));
            Set<String> found = new TreeSet<>();
            int[] taken = {0, 0};
            while (found.size() < 100) {
                for (int i = 0; i < 2; i++) {
                    QueueConsumer<String> consumer = i == 0 ? first : second;
                    Message<String> message = consumer.receive(Duration.ofMillis(100));
                    if (message != null) {
                        consumer.acknowledge(message.id());
                        equal(true, found.add(message.value()));
                        taken[i]++;
                    }
                }
            }
            equal(true, taken[0] > 0 && taken[1] > 0);
        }
    }

    void queueGivenBack() throws Exception {
        send(List.of("one"));
        try (QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string())
                .topic(topic)
                .subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                .negativeAckRedeliveryBackoff(BackoffPolicy.exponential(Duration.ofMillis(100), Duration.ofMillis(200)))
                .subscribe()) {
            Message<String> message = next(consumer);
            consumer.negativeAcknowledge(message.id());
            Message<String> again = next(consumer);
            equal("one", again.value());
            equal(1, again.redeliveryCount());
        }
    }

    void queueDeadLetters() throws Exception {
        send(List.of("one", "two"));
        String letters = topic + "-letters";
        try (QueueConsumer<String> dead = client.newQueueConsumer(Schema.string())
                        .topic(letters)
                        .subscriptionName("s")
                        .subscribe();
                QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string())
                        .topic(topic)
                        .subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .negativeAckRedeliveryBackoff(
                                BackoffPolicy.exponential(Duration.ofMillis(100), Duration.ofMillis(200)))
                        .deadLetterPolicy(DeadLetterPolicy.builder()
                                .maxRedeliverCount(1)
                                .deadLetterTopic(letters)
                                .build())
                        .subscribe()) {
            int given = 0;
            while (given < 2) { // "two" is accepted, "one" never
                Message<String> message = next(consumer);
                if (message.value().equals("two")) {
                    consumer.acknowledge(message.id());
                } else {
                    given++;
                    consumer.negativeAcknowledge(message.id());
                }
            }
            Thread reader = new Thread(() -> {
                try {
                    consumer.receive(WAIT); // a client sends dead letters while it receives
                } catch (PulsarClientException error) {
                    System.err.println(error);
                }
            });
            reader.setDaemon(true);
            reader.start();
            equal(List.of("one"), take(dead, 1));
        }
    }

    void streamContinues() throws Exception {
        send(values("m", 10));
        try (StreamConsumer<String> consumer = stream(client, "s")) {
            List<Message<String>> found = take(consumer, 6);
            equal(values("m", 6), valuesOf(found));
            consumer.acknowledgeCumulative(found.get(5).id());
        }
        try (StreamConsumer<String> consumer = stream(client, "s")) {
            equal(values("m", 10).subList(6, 10), valuesOf(take(consumer, 4)));
        }
    }

    void streamOfPartitions() throws Exception {
        partitioned(3);
        List<String> sent = new ArrayList<>();
        try (Producer<String> producer = producer()) {
            for (int i = 0; i < 60; i++) {
                producer.newMessage().key("k" + i % 10).value("k" + i % 10 + "-" + i).send();
                sent.add("k" + i % 10 + "-" + i);
            }
        }
        try (StreamConsumer<String> consumer = stream(client, "s")) {
            Map<String, List<String>> found = new TreeMap<>();
            List<Message<String>> all = take(consumer, 60);
            for (Message<String> message : all) {
                found.computeIfAbsent(message.key().orElseThrow(), key -> new ArrayList<>()).add(message.value());
            }
            for (Map.Entry<String, List<String>> one : found.entrySet()) {
                equal(sent.stream().filter(value -> value.startsWith(one.getKey() + "-")).toList(), one.getValue());
            }
            consumer.acknowledgeCumulative(all.get(59).id()); // of all partitions
        }
        try (StreamConsumer<String> consumer = stream(client, "s")) {
            equal(null, consumer.receive(SILENCE));
        }
    }

    void streamIsShared() throws Exception {
        partitioned(2);
        try (PulsarClient other = PulsarClient.builder().serviceUrl(url).operationTimeout(WAIT).build();
                StreamConsumer<String> first = stream(client, "s");
                StreamConsumer<String> second = stream(other, "s")) {
            send(values("m", 100));
            int[] taken = {0, 0};
            while (taken[0] + taken[1] < 100) {
                taken[0] += first.receive(Duration.ofMillis(100)) == null ? 0 : 1;
                taken[1] += second.receive(Duration.ofMillis(100)) == null ? 0 : 1;
            }
            equal(true, taken[0] > 0 && taken[1] > 0);
        }
    }

    void keysAsInV4() throws Exception {
        partitioned(5);
        Map<String, String> found = new TreeMap<>();
        try (org.apache.pulsar.client.api.PulsarClient v4 = v4();
                org.apache.pulsar.client.api.Consumer<String> consumer = v4.newConsumer(
                                org.apache.pulsar.client.api.Schema.STRING)
                        .topic(topic)
                        .subscriptionName("s")
                        .subscribe();
                org.apache.pulsar.client.api.Producer<String> old = v4.newProducer(
                                org.apache.pulsar.client.api.Schema.STRING)
                        .topic(topic)
                        .hashingScheme(HashingScheme.Murmur3_32Hash)
                        .create()) {
            send(values("k", 40));
            for (String key : values("k", 40)) {
                old.newMessage().key(key).value(key).send();
            }
            Set<String> partitions = new TreeSet<>();
            for (int i = 0; i < 80; i++) {
                var message = consumer.receive();
                partitions.add(message.getTopicName());
                String known = found.putIfAbsent(message.getKey(), message.getTopicName());
                equal(message.getTopicName(), known == null ? message.getTopicName() : known);
            }
            equal(5, partitions.size());
        }
    }

    void partitionsAdded() throws Exception {
        partitioned(1);
        try (Producer<String> producer = producer();
                QueueConsumer<String> consumer = queue("q");
                StreamConsumer<String> stream = stream(client, "s")) {
            producer.newMessage().value("first").send();
            equal(List.of("first"), take(consumer, 1));
            equal(List.of("first"), valuesOf(take(stream, 1)));
            ask("POST", path() + "/partitions", "3");
            Set<String> partitions = new TreeSet<>();
            int sent = 0;
            while (partitions.size() < 3) { // until the producer knows of all
                partitions.add(producer.newMessage().value("m" + sent++).send().toString().split("[=,]")[1]);
            }
            equal(new TreeSet<>(values("m", sent)), new TreeSet<>(take(consumer, sent)));
            equal(new TreeSet<>(values("m", sent)), new TreeSet<>(valuesOf(take(stream, sent))));
        }
    }

    void readByV4() throws Exception {
        send(values("m", 20));
        try (org.apache.pulsar.client.api.PulsarClient v4 = v4();
                org.apache.pulsar.client.api.Consumer<String> consumer = v4.newConsumer(
                                org.apache.pulsar.client.api.Schema.STRING)
                        .topic(topic)
                        .subscriptionName("s")
                        .subscriptionType(SubscriptionType.Shared)
                        .subscriptionInitialPosition(
                                org.apache.pulsar.client.api.SubscriptionInitialPosition.Earliest)
                        .subscribe()) {
            for (String value : values("m", 20)) {
                var message = consumer.receive();
                equal(value, message.getValue());
                equal(value, message.getKey());
                consumer.acknowledge(message);
            }
        }
    }

    void writtenByV4() throws Exception {
        partitioned(2);
        try (org.apache.pulsar.client.api.PulsarClient v4 = v4();
                org.apache.pulsar.client.api.Producer<String> producer = v4.newProducer(
                                org.apache.pulsar.client.api.Schema.STRING)
                        .topic(topic)
                        .create()) {
            for (String value : values("m", 50)) {
                producer.newMessage().property("p", value).value(value).sendAsync();
            }
            producer.flush();
        }
        try (QueueConsumer<String> consumer = queue("s")) {
            Set<String> found = new TreeSet<>();
            for (int i = 0; i < 50; i++) {
                Message<String> message = next(consumer);
                equal(message.value(), message.properties().get("p"));
                found.add(message.value());
            }
            equal(new TreeSet<>(values("m", 50)), found);
        }
    }

    void transactions() throws Exception {
        send(List.of("input"));
        String output = topic + "-output";
        TransactionPolicy policy = TransactionPolicy.builder().timeout(Duration.ofMinutes(1)).build();
        try (PulsarClient client = PulsarClient.builder().serviceUrl(url).transactionPolicy(policy).build();
                QueueConsumer<String> input = client.newQueueConsumer(Schema.string())
                        .topic(topic)
                        .subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe();
                Producer<String> producer = client.newProducer(Schema.string()).topic(output).create();
                QueueConsumer<String> reader = client.newQueueConsumer(Schema.string())
                        .topic(output)
                        .subscriptionName("s")
                        .subscriptionInitialPosition(SubscriptionInitialPosition.EARLIEST)
                        .subscribe()) {
            Transaction aborted = client.newTransaction();
            producer.newMessage().transaction(aborted).value("aborted").send();
            aborted.abort();
            Message<String> message = next(input);
            Transaction kept = client.newTransaction();
            producer.newMessage().transaction(kept).value("kept").send();
            input.acknowledge(message.id(), kept);
            equal(null, reader.receive(SILENCE));
            kept.commit();
            equal(List.of("kept"), take(reader, 1));
        }
        try (QueueConsumer<String> input = queue("s")) {
            equal(null, input.receive(SILENCE));
        }
    }

    void checkpoints() throws Exception {
        partitioned(2);
        send(values("m", 20));
        byte[] kept;
        Set<String> found = new TreeSet<>();
        try (var consumer = client.newCheckpointConsumer(Schema.string())
                .topic(topic)
                .startPosition(Checkpoint.earliest())
                .create()) {
            for (int i = 0; i < 12; i++) {
                found.add(Objects.requireNonNull(consumer.receive(WAIT)).value());
            }
            kept = consumer.checkpoint().toByteArray();
        }
        try (var consumer = client.newCheckpointConsumer(Schema.string())
                .topic(topic)
                .startPosition(Checkpoint.fromByteArray(kept))
                .create()) {
            for (int i = 0; i < 8; i++) {
                equal(true, found.add(Objects.requireNonNull(consumer.receive(WAIT)).value()));
            }
        }
        equal(new TreeSet<>(values("m", 20)), found);
    }

    void checkpointsOfGroup() throws Exception {
        partitioned(2);
        send(values("m", 20));
        Set<String> found = new TreeSet<>();
        try (var consumer = client.newCheckpointConsumer(Schema.string())
                .topic(topic)
                .consumerGroup("g")
                .startPosition(Checkpoint.earliest())
                .create()) {
            for (int i = 0; i < 20; i++) {
                found.add(Objects.requireNonNull(consumer.receive(WAIT)).value());
            }
        }
        equal(new TreeSet<>(values("m", 20)), found);
    }

    void topicIsMissing() throws Exception {
        String missing = "persistent://public/no-such-namespace/t";
        String said = refusal(world -> client.newProducer(Schema.string()).topic(missing).create(), this);
        equal(true, said.contains("Namespace not found"));
    }

    void scalableTopic() throws Exception {
        String name = topic.replace("persistent://", "topic://");
        ask("PUT", "scalable/" + name.substring("topic://".length()) + "?numInitialSegments=2", "");
        try (Producer<String> producer = client.newProducer(Schema.string()).topic(name).create()) {
            producer.newMessage().value("one").send();
        }
    }

    void topicsOfNamespace() throws Exception {
        try (QueueConsumer<String> consumer = client.newQueueConsumer(Schema.string())
                .namespace("public/default")
                .subscriptionName("s")
                .subscribe()) {
            equal(null, consumer.receive(SILENCE));
        }
    }
}
