// Kafka's Java share consumer, until its input ends; a process of its own, which may be killed.
//
//     QueueSharer SEED BOOTSTRAP TOPIC GROUP POISON
//
// What it says, and how it draws what it does, is that of queue_consumers.py.

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringDeserializer;

public class QueueSharer {
    static final double RELEASED_SHARE = 0.08;
    static final double REJECTED_SHARE = 0.01;
    static final Map<String, AcknowledgeType> KINDS =
        Map.of("a", AcknowledgeType.ACCEPT, "r", AcknowledgeType.RELEASE, "x", AcknowledgeType.REJECT);

    static volatile boolean ended = false;

    static void say(String letter, List<String> messages) {
        if (!messages.isEmpty()) {
            System.out.println(letter + " " + System.nanoTime() + " " + String.join(" ", messages));
        }
    }

    static String drawn(Random choose, long number, int poison) {
        if (number % poison == 0) {
            return "r";
        }
        double dice = choose.nextDouble();
        return dice < REJECTED_SHARE ? "x" : dice < REJECTED_SHARE + RELEASED_SHARE ? "r" : "a";
    }

    static void some(KafkaShareConsumer<String, String> consumer, Random choose, int poison) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        consumer.poll(Duration.ofMillis(500)).forEach(found::add);
        if (found.isEmpty()) {
            return;
        }
        List<String> given = new ArrayList<>();
        List<String> kinds = new ArrayList<>();
        for (var record : found) {
            given.add(record.value() + ":" + record.deliveryCount().orElse((short) 0));
            kinds.add(drawn(choose, Long.parseLong(record.value()), poison));
        }
        say("g", given);
        for (String letter : List.of("a", "r", "x")) {
            List<String> said = new ArrayList<>();
            for (int at = 0; at < found.size(); at++) {
                if (kinds.get(at).equals(letter)) {
                    said.add(found.get(at).value());
                }
            }
            say(letter, said);
        }
        for (int at = 0; at < found.size(); at++) {
            consumer.acknowledge(found.get(at), KINDS.get(kinds.get(at)));
        }
        Set<Integer> stored = new HashSet<>();
        consumer.commitSync().forEach((place, error) -> {
            if (error.isEmpty()) {
                stored.add(place.partition());
            }
        });
        List<String> answered = new ArrayList<>();
        for (var record : found) {
            if (stored.contains(record.partition())) {
                answered.add(record.value());
            }
        }
        say("d", answered);
    }

    public static void main(String[] arguments) throws Exception {
        Random choose = new Random(Long.parseLong(arguments[0]));
        int poison = Integer.parseInt(arguments[4]);
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
        var consumer = new KafkaShareConsumer<>(
            Map.<String, Object>of(
                "bootstrap.servers", arguments[1], "group.id", arguments[3],
                "share.acknowledgement.mode", "explicit", "max.poll.records", 200,
                "reconnect.backoff.ms", 20, "reconnect.backoff.max.ms", 200),
            new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[2]));
        while (!ended) {
            try {
                some(consumer, choose, poison);
            } catch (KafkaException away) {
                Thread.sleep(200);
            }
        }
        consumer.close(Duration.ofSeconds(10));
        System.exit(0);
    }
}
