// Pulsar's Java client as a Shared consumer, until its input ends; a process of its own, which may be killed.
//
//     QueueTaker SEED URL TOPIC SUBSCRIPTION POISON SINGLE LIMIT
//
// What it says, and how it draws what it does, is that of queue_consumers.py; it hears answers to what it acknowledges.

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.BatchReceivePolicy;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;

public class QueueTaker {
    static final double RELEASED_SHARE = 0.09;
    static final int PLACES = 20;

    static volatile boolean ended = false;

    static void say(String letter, List<String> messages) {
        if (!messages.isEmpty()) {
            System.out.println(letter + " " + System.nanoTime() + " " + String.join(" ", messages));
        }
    }

    static Consumer<byte[]> subscribed(PulsarClient client, String topic, String name) throws Exception {
        while (true) {
            try {
                return client.newConsumer()
                    .topic(topic)
                    .subscriptionName(name)
                    .subscriptionType(SubscriptionType.Shared)
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .receiverQueueSize(PLACES)
                    .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                    .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                    .isAckReceiptEnabled(true)
                    .enableBatchIndexAcknowledgment(true)
                    .batchReceivePolicy(
                        BatchReceivePolicy.builder().maxNumMessages(PLACES).timeout(100, TimeUnit.MILLISECONDS).build())
                    .subscribe();
            } catch (PulsarClientException away) {
                Thread.sleep(200);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        Random choose = new Random(Long.parseLong(arguments[0]));
        long poison = Long.parseLong(arguments[4]);
        long single = Long.parseLong(arguments[5]);
        int limit = Integer.parseInt(arguments[6]);
        Thread listener = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {}
            } catch (java.io.IOException gone) {
                // it has ended
            }
            ended = true;
        });
        listener.setDaemon(true);
        listener.start();
        PulsarClient client = PulsarClient.builder()
            .serviceUrl(arguments[1])
            .operationTimeout(10, TimeUnit.SECONDS)
            .maxBackoffInterval(500, TimeUnit.MILLISECONDS)
            .build();
        Consumer<byte[]> consumer = subscribed(client, arguments[2], arguments[3]);
        while (!ended) {
            List<String> given = new ArrayList<>();
            List<String> accepted = new ArrayList<>();
            List<String> returned = new ArrayList<>();
            List<Message<byte[]>> done = new ArrayList<>();
            List<Message<byte[]>> back = new ArrayList<>();
            for (Message<byte[]> message : consumer.batchReceive()) {
                String value = new String(message.getData());
                long number = Long.parseLong(value);
                int deliveries = message.getRedeliveryCount() + 1;
                given.add(value + ":" + deliveries);
                boolean refused = number % poison == 0 ? deliveries < limit : choose.nextDouble() < RELEASED_SHARE;
                if (refused && number % single == 0) {
                    returned.add(value);
                    back.add(message);
                } else {
                    accepted.add(value);
                    done.add(message);
                }
            }
            say("g", given);
            say("a", accepted);
            say("r", returned);
            back.forEach(consumer::negativeAcknowledge);
            List<CompletableFuture<Void>> answers = new ArrayList<>();
            done.forEach(message -> answers.add(consumer.acknowledgeAsync(message)));
            List<String> answered = new ArrayList<>();
            for (int at = 0; at < answers.size(); at++) {
                try {
                    answers.get(at).get();
                    answered.add(accepted.get(at));
                } catch (ExecutionException refusal) {
                    // it comes again, or not
                }
            }
            say("d", answered);
        }
        client.close();
        System.exit(0);
    }
}
