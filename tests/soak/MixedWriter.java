// Kafka's Java producer, which speaks KIP-890's protocol, writing in transactions until its input ends; a process of its
// own, which may be killed.
//
//     MixedWriter NAME SEED BOOTSTRAP PARTITIONS TOPIC...
//
// What it says, and what its records are, is that of mixed_clients.py.

import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.serialization.StringSerializer;

public class MixedWriter {
    static final int RECORDS_MAX = 6;
    static final double ABORTED_SHARE = 0.3;
    static final int TIMEOUT_MS = 8_000;

    static volatile boolean ended = false;

    static KafkaProducer<String, String> connected(String name, String bootstrap) {
        while (true) {
            var made = new KafkaProducer<>(
                Map.<String, Object>of(
                    "bootstrap.servers", bootstrap, "transactional.id", name, "linger.ms", 1,
                    "transaction.timeout.ms", TIMEOUT_MS, "max.block.ms", 30_000,
                    "delivery.timeout.ms", 7_000, "request.timeout.ms", 5_000, "reconnect.backoff.max.ms", 200),
                new StringSerializer(), new StringSerializer());
            try {
                made.initTransactions();
                return made;
            } catch (KafkaException away) {
                made.close(java.time.Duration.ZERO);
            }
        }
    }

    static void say(String state, String transaction) {
        System.out.println(state + " " + transaction);
    }

    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        Random choose = new Random(Long.parseLong(arguments[1]));
        String bootstrap = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
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
        var producer = connected(name, bootstrap);
        for (int begun = 1; !ended; begun++) {
            String transaction = name + "." + ProcessHandle.current().pid() + "." + begun;
            try {
                say("open", transaction);
                producer.beginTransaction();
                int count = 1 + choose.nextInt(RECORDS_MAX);
                for (int number = 0; number < count; number++) {
                    String topic = arguments[4 + choose.nextInt(arguments.length - 4)];
                    String value = transaction + "|" + number + "|" + count + "|-";
                    producer.send(new ProducerRecord<>(topic, choose.nextInt(partitions), null, value));
                }
                if (choose.nextDouble() < ABORTED_SHARE) {
                    producer.abortTransaction();
                    say("aborted", transaction);
                } else {
                    say("committing", transaction);
                    producer.commitTransaction();
                    say("committed", transaction);
                }
            } catch (KafkaException failed) {
                producer.close(java.time.Duration.ZERO);
                producer = connected(name, bootstrap);
            }
        }
        System.exit(0);
    }
}
