// A transactional producer and a copier as Kafka's Java client makes them.
//
//     Transactions BOOTSTRAP SOURCE TARGET RECORDS
//
// Fills SOURCE with RECORDS committed records and others that are aborted, copies what is committed to TARGET in
// transactions that move the group's offsets as well, every fourth of them aborted and done again, and fences itself.
// Each line it prints is one thing that happened; the last one is "done".

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions {
    static final String GROUP = "copier";
    static final int BATCH = 5;

    static String bootstrap;

    static KafkaProducer<String, String> producer(String id) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", id, "linger.ms", 1, "batch.size", 200,
            "delivery.timeout.ms", 280_000, "max.block.ms", 280_000, "reconnect.backoff.max.ms", 200,
            "transaction.timeout.ms", 600_000);
        var made = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        made.initTransactions();
        return made;
    }

    static void fill(String topic, int count) {
        try (var producer = producer("filler")) {
            for (int begin = 0; begin < count; begin += BATCH) {
                for (boolean commit : new boolean[] {false, true}) {
                    producer.beginTransaction();
                    for (int one = begin; one < Math.min(begin + BATCH, count); one++) {
                        String value = (commit ? "" : "aborted ") + one;
                        producer.send(new ProducerRecord<>(topic, one % 3, null, value));
                    }
                    if (commit) producer.commitTransaction(); else producer.abortTransaction();
                }
                producer.beginTransaction();
                producer.abortTransaction();  // of nothing
                System.out.println("filled " + begin);
            }
        }
    }

    static void copy(String source, String target, int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", GROUP, "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", BATCH,
            "reconnect.backoff.max.ms", 200, "session.timeout.ms", 45_000, "default.api.timeout.ms", 280_000);
        int copied = 0;
        int round = 0;
        try (var producer = producer("copier");
             var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(source));
            while (copied < count) {
                var records = consumer.poll(Duration.ofMillis(500));
                if (records.isEmpty()) continue;
                boolean commit = ++round % 4 != 0;
                var offsets = new HashMap<TopicPartition, OffsetAndMetadata>();
                var begins = new HashMap<TopicPartition, Long>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    var partition = new TopicPartition(source, record.partition());
                    begins.putIfAbsent(partition, record.offset());
                    offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                    producer.send(new ProducerRecord<>(target, null, record.value()));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (commit) {
                    producer.commitTransaction();
                    copied += records.count();
                    System.out.println("copied " + copied);
                } else {
                    producer.abortTransaction();
                    begins.forEach(consumer::seek);
                }
            }
        }
    }

    static short epoch(String id) throws Exception {
        try (var admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
            return (short) admin.describeTransactions(Set.of(id)).description(id).get().producerEpoch();
        }
    }

    static void fence(String topic) throws Exception {
        try (var first = producer("fenced")) {
            short before = epoch("fenced");
            for (int one = 0; one < 3; one++) {
                first.beginTransaction();
                first.send(new ProducerRecord<>(topic, 0, null, "fenced"));
                first.abortTransaction();
            }
            System.out.println("epochs " + (epoch("fenced") - before));
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "fenced")).get();
            try (var second = producer("fenced")) {
                try {
                    first.commitTransaction();
                    System.out.println("not fenced");
                } catch (KafkaException refused) {
                    System.out.println("fenced by " + refused.getClass().getSimpleName());
                }
                second.beginTransaction();
                second.send(new ProducerRecord<>(topic, 0, null, "aborted by the second"));
                second.abortTransaction();
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        int count = Integer.parseInt(arguments[3]);
        fill(arguments[1], count);
        copy(arguments[1], arguments[2], count);
        fence(arguments[2]);
        System.out.println("done");
    }
}
