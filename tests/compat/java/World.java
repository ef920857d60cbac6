import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

/** What a scenario has: a client, a topic name of its own, the broker's HTTP address, and ways to insist. */
final class World implements AutoCloseable {
    static final int WAIT_S = 20;
    static final int SILENCE_MS = 700;

    final PulsarClient client;
    final String url;
    final String http;
    final String topic;

    World(String url, String http, String name) throws PulsarClientException {
        this.url = url;
        this.http = http;
        this.topic = "java-" + name.replace('_', '-') + "-" + Long.toHexString(System.nanoTime());
        this.client = newClient();
    }

    PulsarClient newClient() throws PulsarClientException {
        return PulsarClient.builder().serviceUrl(url).operationTimeout(WAIT_S, TimeUnit.SECONDS).build();
    }

    @Override
    public void close() throws PulsarClientException {
        client.close();
    }

    ConsumerBuilder<byte[]> consumer(String subscription, SubscriptionType type) {
        return client.newConsumer()
                .topic(topic)
                .subscriptionName(subscription)
                .subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS);
    }

    List<MessageId> send(int from, int to) throws PulsarClientException {
        return sendTo(topic, from, to);
    }

    /** The numbers as text, one message an entry. */
    List<MessageId> sendTo(String where, int from, int to) throws PulsarClientException {
        List<MessageId> ids = new ArrayList<>();
        try (Producer<byte[]> producer = client.newProducer().topic(where).enableBatching(false).create()) {
            for (int n = from; n < to; n++) {
                ids.add(producer.send(bytes(n)));
            }
        }
        return ids;
    }

    /** The same in batches of five. */
    List<MessageId> sendBatched(int from, int to) throws Exception {
        List<java.util.concurrent.CompletableFuture<MessageId>> futures = new ArrayList<>();
        try (Producer<byte[]> producer = client.newProducer()
                .topic(topic)
                .enableBatching(true)
                .batchingMaxMessages(5)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .create()) {
            for (int n = from; n < to; n++) {
                futures.add(producer.sendAsync(bytes(n)));
            }
            producer.flush();
        }
        List<MessageId> ids = new ArrayList<>();
        for (var future : futures) {
            ids.add(future.get(WAIT_S, TimeUnit.SECONDS));
        }
        return ids;
    }

    /** Answers the status; a body of null sends none. */
    int request(String method, String path, String body) throws Exception {
        HttpRequest.BodyPublisher publisher =
                body == null ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(body);
        HttpRequest request = HttpRequest.newBuilder(URI.create(http + "/admin/v2/" + path))
                .header("Content-Type", "application/json")
                .method(method, publisher)
                .build();
        HttpResponse<String> answer =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() >= 400) {
            System.err.println(method + " " + path + ": " + answer.statusCode() + " " + answer.body());
        }
        return answer.statusCode();
    }

    void requestOk(String method, String path, String body) throws Exception {
        int status = request(method, path, body);
        check(status >= 200 && status < 300, method + " " + path + " was answered with " + status);
    }

    static byte[] bytes(int number) {
        return Integer.toString(number).getBytes(StandardCharsets.UTF_8);
    }

    static int number(Message<byte[]> message) {
        return Integer.parseInt(new String(message.getData(), StandardCharsets.UTF_8));
    }

    static <T> Message<T> receive(Consumer<T> consumer) throws PulsarClientException {
        Message<T> message = consumer.receive(WAIT_S, TimeUnit.SECONDS);
        check(message != null, consumer.getConsumerName() + " got no message within " + WAIT_S + " s");
        return message;
    }

    static void expectSilence(Consumer<?> consumer) throws PulsarClientException {
        Message<?> message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        check(message == null, consumer.getConsumerName() + " got a message that it should not get");
    }

    /** Receives the numbers from..to-1 in order and acknowledges each. */
    static void expect(Consumer<byte[]> consumer, int from, int to) throws PulsarClientException {
        for (int n = from; n < to; n++) {
            Message<byte[]> message = receive(consumer);
            equal(n, number(message), "the next message");
            consumer.acknowledge(message);
        }
    }

    static void check(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(Object wanted, Object found, String what) {
        check(Objects.equals(wanted, found), what + ": wanted " + wanted + ", found " + found);
    }

    interface Attempt {
        void run() throws Exception;
    }

    static void expectFailure(Class<? extends Exception> kind, Attempt attempt) {
        try {
            attempt.run();
        } catch (Exception error) {
            check(kind.isInstance(error), "wanted " + kind.getSimpleName() + ", found " + error);
            return;
        }
        throw new AssertionError("wanted " + kind.getSimpleName() + ", and it went through");
    }

    interface Question {
        boolean holds() throws Exception;
    }

    static void eventually(Question question, String what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        while (!question.holds()) {
            check(System.nanoTime() < deadline, "not within " + WAIT_S + " s: " + what);
            Thread.sleep(20);
        }
    }

    Producer<byte[]> producer() throws PulsarClientException {
        return client.newProducer(Schema.BYTES).topic(topic).enableBatching(false).create();
    }
}
