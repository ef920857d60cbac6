import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.TypedMessageBuilder;

/**
 * Java's Kafka and Pulsar clients at the end of a pipe, for tests that are written in Python.
 *
 * <p>Usage: Bridge KAFKA_BOOTSTRAP PULSAR_URL. A command is one line of words separated by tabs:
 *
 * <pre>
 * kafka-produce  TOPIC COMPRESSION COUNT          and COUNT records; answers COUNT offsets
 * kafka-consume  TOPIC PARTITIONS COUNT           answers COUNT records
 * pulsar-produce TOPIC PACKING COMPRESSION COUNT  and COUNT records; answers COUNT positions; PACKING is plain, batched or chunked
 * pulsar-consume TOPIC COUNT                      answers COUNT records
 * </pre>
 *
 * <p>A record is a line: partition, time, key, value, headers as name:value,name:value, and in answers the position.
 * Pulsar's have the ordering key as one more word. Keys, values, names are base64, null is "~". After its lines an answer ends with "OK" or "FAILED text".
 */
public final class Bridge {
    private static final int WAIT_S = 30;
    private static final int BYTES_MAX = 8 << 20;

    private record Line(
            int partition,
            long time,
            byte[] key,
            byte[] value,
            List<Map.Entry<String, byte[]>> headers,
            byte[] orderingKey) {}

    private final BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII), 1 << 20);
    private final PrintStream output = new PrintStream(System.out, false, StandardCharsets.US_ASCII);
    private final String bootstrap;
    private final PulsarClient pulsar;

    private Bridge(String bootstrap, PulsarClient pulsar) {
        this.bootstrap = bootstrap;
        this.pulsar = pulsar;
    }

    public static void main(String[] words) throws Exception {
        try (PulsarClient pulsar = PulsarClient.builder().serviceUrl(words[1]).build()) {
            new Bridge(words[0], pulsar).serve();
        }
        System.exit(0);
    }

    private void serve() throws Exception {
        String line;
        while ((line = input.readLine()) != null) {
            String[] words = line.split("\t");
            List<Line> records = new ArrayList<>();
            if (words[0].endsWith("-produce")) {
                for (int n = Integer.parseInt(words[words.length - 1]); n > 0; n--) {
                    records.add(parse(input.readLine()));
                }
            }
            try {
                switch (words[0]) {
                    case "kafka-produce" -> kafkaProduce(words[1], words[2], records);
                    case "kafka-consume" ->
                            kafkaConsume(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
                    case "pulsar-produce" -> pulsarProduce(words[1], words[2], words[3], records);
                    case "pulsar-consume" -> pulsarConsume(words[1], Integer.parseInt(words[2]));
                    default -> throw new IllegalArgumentException("no command is called " + words[0]);
                }
                output.println("OK");
            } catch (Exception error) {
                error.printStackTrace();
                output.println("FAILED " + error.toString().replace('\n', ' '));
            }
            output.flush();
        }
    }

    private void kafkaProduce(String topic, String compression, List<Line> records) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("compression.type", compression);
        settings.put("linger.ms", "20");
        settings.put("max.request.size", Integer.toString(BYTES_MAX));
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Line each : records) {
                var record = new ProducerRecord<>(topic, each.partition, each.time, each.key, each.value);
                for (var header : each.headers) {
                    record.headers().add(header.getKey(), header.getValue());
                }
                futures.add(producer.send(record));
            }
            producer.flush();
        }
        for (Future<RecordMetadata> future : futures) {
            output.println(future.get(WAIT_S, TimeUnit.SECONDS).offset());
        }
    }

    private void kafkaConsume(String topic, int partitions, int count) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        List<TopicPartition> assigned = new ArrayList<>();
        for (int n = 0; n < partitions; n++) {
            assigned.add(new TopicPartition(topic, n));
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(WAIT_S);
        int seen = 0;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(assigned);
            consumer.seekToBeginning(assigned);
            while (seen < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(seen + " of " + count + " records");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    List<String> headers = new ArrayList<>();
                    for (Header header : record.headers()) {
                        headers.add(text(header.key().getBytes(StandardCharsets.UTF_8)) + ":" + text(header.value()));
                    }
                    show(record.partition(), record.timestamp(), record.key(), record.value(), headers,
                            Long.toString(record.offset()));
                    seen++;
                }
            }
        }
    }

    private void pulsarProduce(String topic, String packing, String compression, List<Line> records) throws Exception {
        List<CompletableFuture<MessageId>> futures = new ArrayList<>();
        try (Producer<byte[]> producer = pulsar.newProducer()
                .topic(topic)
                .compressionType(CompressionType.valueOf(compression.toUpperCase()))
                .enableBatching(packing.equals("batched"))
                .batchingMaxMessages(16)
                .batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
                .enableChunking(packing.equals("chunked"))
                .blockIfQueueFull(true)
                .create()) {
            for (Line each : records) {
                TypedMessageBuilder<byte[]> message = producer.newMessage().value(each.value);
                if (each.time > 0) {
                    message.eventTime(each.time);
                }
                if (each.key != null) {
                    message.key(new String(each.key, StandardCharsets.UTF_8));
                }
                if (each.orderingKey != null) {
                    message.orderingKey(each.orderingKey);
                }
                for (var header : each.headers) {
                    message.property(header.getKey(), new String(header.getValue(), StandardCharsets.UTF_8));
                }
                futures.add(message.sendAsync());
            }
            producer.flush();
        }
        for (CompletableFuture<MessageId> future : futures) {
            output.println(position(future.get(WAIT_S, TimeUnit.SECONDS)));
        }
    }

    private void pulsarConsume(String topic, int count) throws Exception {
        try (Consumer<byte[]> consumer = pulsar.newConsumer()
                .topic(topic)
                .subscriptionName("interop-java")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .subscribe()) {
            for (int n = 0; n < count; n++) {
                Message<byte[]> message = consumer.receive(WAIT_S, TimeUnit.SECONDS);
                if (message == null) {
                    throw new IllegalStateException(n + " of " + count + " messages");
                }
                List<String> headers = new ArrayList<>();
                message.getProperties().forEach((name, value) -> headers.add(
                        text(name.getBytes(StandardCharsets.UTF_8)) + ":" + text(value.getBytes(StandardCharsets.UTF_8))));
                int partition = ((MessageIdAdv) message.getMessageId()).getPartitionIndex();
                String index = message.getIndex().map(String::valueOf).orElse("~");
                show(Math.max(partition, 0), message.getEventTime(), message.hasKey() ? message.getKeyBytes() : null,
                        message.getValue(), headers, position(message.getMessageId()) + ":" + index + "\t" + text(message.getOrderingKey()));
            }
            consumer.unsubscribe();
        }
    }

    private static String position(MessageId id) {
        MessageIdAdv at = (MessageIdAdv) id;
        return at.getLedgerId() + ":" + at.getEntryId() + ":" + at.getBatchIndex();
    }

    private void show(int partition, long time, byte[] key, byte[] value, List<String> headers, String position) {
        output.println(String.join("\t", Integer.toString(partition), Long.toString(time), text(key), text(value),
                String.join(",", headers), position));
    }

    private static Line parse(String line) {
        String[] fields = line.split("\t", -1);
        List<Map.Entry<String, byte[]>> headers = new ArrayList<>();
        for (String each : fields[4].isEmpty() ? new String[0] : fields[4].split(",")) {
            String[] pair = each.split(":", -1);
            headers.add(new java.util.AbstractMap.SimpleEntry<>(
                    new String(bytes(pair[0]), StandardCharsets.UTF_8), bytes(pair[1])));
        }
        return new Line(Integer.parseInt(fields[0]), Long.parseLong(fields[1]), bytes(fields[2]), bytes(fields[3]), headers,
                fields.length > 5 ? bytes(fields[5]) : null);
    }

    private static String text(byte[] data) {
        return data == null ? "~" : Base64.getEncoder().encodeToString(data);
    }

    private static byte[] bytes(String text) {
        return text.equals("~") ? null : Base64.getDecoder().decode(text);
    }
}
