import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.transaction.Transaction;

/**
 * Pulsar's Java client with transactions at the end of a pipe, for tests that are written in Python.
 *
 * <p>Usage: TransactionsBridge PULSAR_URL. A command is one line of words separated by blanks; NAME is what the test
 * calls a transaction, "-" is none:
 *
 * <pre>
 * begin NAME TIMEOUT_MS                   answers the transaction's id
 * send NAME TOPIC PACKING VALUE...        answers when all are stored; PACKING is plain, batched or chunked
 * subscribe CONSUMER TOPIC SUBSCRIPTION TYPE
 * receive CONSUMER COUNT                  answers the values
 * silence CONSUMER MS                     answers what has come meanwhile
 * ack NAME CONSUMER VALUE...              of what was received
 * ack-to NAME CONSUMER VALUE              cumulatively
 * redeliver CONSUMER                      all that is not acknowledged
 * close CONSUMER
 * commit NAME, abort NAME, state NAME
 * </pre>
 *
 * <p>An answer is one line: "OK" and words, or "FAILED" and the class and the text of what went wrong.
 */
public final class TransactionsBridge {
    private static final int WAIT_S = 60;
    private static final int CHUNK_BYTES = 6 << 20;

    private final PulsarClient client;
    private final Map<String, Transaction> transactions = new HashMap<>();
    private final Map<String, Producer<byte[]>> producers = new HashMap<>();
    private final Map<String, Consumer<byte[]>> consumers = new HashMap<>();
    private final Map<String, Map<String, MessageId>> received = new HashMap<>();

    private TransactionsBridge(String url) throws Exception {
        client = PulsarClient.builder()
                .serviceUrl(url)
                .enableTransaction(true)
                .operationTimeout(WAIT_S, TimeUnit.SECONDS)
                .build();
    }

    public static void main(String[] words) throws Exception {
        TransactionsBridge bridge = new TransactionsBridge(words[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = ("OK " + bridge.answer(List.of(line.split(" ")))).trim();
            } catch (Throwable error) {
                error.printStackTrace();
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answer = "FAILED " + cause.getClass().getSimpleName() + " " + String.valueOf(cause.getMessage()).replace('\n', ' ');
            }
            System.out.println(answer);
            System.out.flush();
        }
        System.exit(0); // threads of the client stay
    }

    private String answer(List<String> words) throws Exception {
        String name = words.get(1);
        List<String> rest = words.subList(2, words.size());
        switch (words.get(0)) {
            case "begin":
                transactions.put(name, wait(client.newTransaction()
                        .withTransactionTimeout(Long.parseLong(rest.get(0)), TimeUnit.MILLISECONDS)
                        .build()));
                return transactions.get(name).getTxnID().toString();
            case "send":
                send(transactions.get(name), rest.get(0), rest.get(1), rest.subList(2, rest.size()));
                return "";
            case "subscribe":
                consumers.put(name, client.newConsumer()
                        .topic(rest.get(0))
                        .subscriptionName(rest.get(1))
                        .subscriptionType(SubscriptionType.valueOf(rest.get(2)))
                        .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                        .enableBatchIndexAcknowledgment(true)
                        .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                        .consumerName(name)
                        .subscribe());
                received.put(name, new HashMap<>());
                return "";
            case "receive":
                return String.join(" ", receive(name, Integer.parseInt(rest.get(0)), WAIT_S * 1000));
            case "silence":
                return String.join(" ", receive(name, 1, Integer.parseInt(rest.get(0))));
            case "ack":
                for (String value : rest.subList(1, rest.size())) {
                    wait(acknowledge(rest.get(0), transactions.get(name), value));
                }
                return "";
            case "ack-to":
                MessageId last = received.get(rest.get(0)).get(rest.get(1));
                wait(consumers.get(rest.get(0)).acknowledgeCumulativeAsync(last, transactions.get(name)));
                return "";
            case "redeliver":
                consumers.get(name).redeliverUnacknowledgedMessages();
                return "";
            case "close":
                consumers.remove(name).close();
                return "";
            case "commit":
                wait(transactions.get(name).commit());
                return "";
            case "abort":
                wait(transactions.get(name).abort());
                return "";
            case "state":
                return transactions.get(name).getState().toString();
            default:
                throw new IllegalArgumentException(words.get(0));
        }
    }

    private CompletableFuture<Void> acknowledge(String consumer, Transaction transaction, String value) {
        MessageId id = received.get(consumer).get(value);
        return transaction == null
                ? consumers.get(consumer).acknowledgeAsync(id)
                : consumers.get(consumer).acknowledgeAsync(id, transaction);
    }

    private List<String> receive(String consumer, int count, int waitMs) throws Exception {
        List<String> values = new ArrayList<>();
        while (values.size() < count) {
            Message<byte[]> message = consumers.get(consumer).receive(waitMs, TimeUnit.MILLISECONDS);
            if (message == null) {
                break;
            }
            String value = new String(message.getData(), StandardCharsets.UTF_8).strip();
            received.get(consumer).put(value, message.getMessageId());
            values.add(value);
        }
        return values;
    }

    private void send(Transaction transaction, String topic, String packing, List<String> values) throws Exception {
        Producer<byte[]> producer = producers.get(topic + packing);
        if (producer == null) {
            producer = client.newProducer()
                    .topic(topic)
                    .enableBatching(packing.equals("batched"))
                    .enableChunking(packing.equals("chunked"))
                    .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                    .sendTimeout(0, TimeUnit.SECONDS)
                    .create();
            producers.put(topic + packing, producer);
        }
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        for (String value : values) {
            String text = packing.equals("chunked") ? value + " ".repeat(CHUNK_BYTES) : value;
            byte[] data = text.getBytes(StandardCharsets.UTF_8);
            var message = transaction == null ? producer.newMessage() : producer.newMessage(transaction);
            sent.add(message.value(data).sendAsync());
        }
        producer.flushAsync();
        for (CompletableFuture<MessageId> one : sent) {
            wait(one);
        }
    }

    private static <T> T wait(CompletableFuture<T> future) throws Exception {
        return future.get(WAIT_S, TimeUnit.SECONDS);
    }
}
