// A Kafka Streams application: running sums for each account, each exactly once.
//
//     Sums BOOTSTRAP STATE_DIRECTORY GROUP_PROTOCOL
//
// Reads "ACCOUNT AMOUNT" from `amounts`, moves each to its account by a repartition topic, and writes for each of them
// "COUNT SUM" to `sums`: the count makes an amount that is lost or taken twice visible.  Each line that it prints is one
// thing that happened.  It runs until it is killed, or ends with 1 where Streams gives up.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.state.KeyValueStore;

public class Sums {
    static String add(String sum, String amount) {
        String[] words = sum.split(" ");
        long count = Long.parseLong(words[0]) + 1;
        return count + " " + (Long.parseLong(words[1]) + Long.parseLong(amount.split(" ")[1]));
    }

    static Topology topology() {
        // Small and young segments are compacted while the application runs.
        var changelog = Map.of("segment.ms", "100", "min.cleanable.dirty.ratio", "0.01");
        var builder = new StreamsBuilder();
        builder.<String, String>stream("amounts")
            .selectKey((none, amount) -> amount.split(" ")[0])
            .groupByKey(Grouped.as("by-account"))
            .aggregate(
                () -> "0 0",
                (account, amount, sum) -> add(sum, amount),
                Materialized.<String, String, KeyValueStore<Bytes, byte[]>>as("totals").withLoggingEnabled(changelog))
            .toStream()
            .to("sums");
        return builder.build();
    }

    static Properties settings(String[] arguments) {
        var settings = new Properties();
        settings.putAll(Map.of(
            "application.id", "sums", "bootstrap.servers", arguments[0], "state.dir", arguments[1],
            "group.protocol", arguments[2], "processing.guarantee", "exactly_once_v2", "commit.interval.ms", 100,
            "statestore.cache.max.bytes", 0, "repartition.purge.interval.ms", 100,
            "default.key.serde", Serdes.StringSerde.class, "default.value.serde", Serdes.StringSerde.class));
        settings.put("reconnect.backoff.max.ms", 200);
        if (arguments[2].equals("classic")) {  // the streams protocol leaves both to the server
            settings.put("consumer.session.timeout.ms", 6_000);
            settings.put("consumer.heartbeat.interval.ms", 500);
        }
        return settings;
    }

    static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        var isOver = new CountDownLatch(1);
        var streams = new KafkaStreams(topology(), settings(arguments));
        streams.setGlobalStateRestoreListener(new StateRestoreListener() {
            @Override public void onRestoreStart(TopicPartition partition, String store, long first, long last) {}
            @Override public void onBatchRestored(TopicPartition partition, String store, long last, long count) {}
            @Override public void onRestoreEnd(TopicPartition partition, String store, long count) {
                say("restored " + partition + " " + count);
            }
        });
        streams.setUncaughtExceptionHandler(failure -> {
            for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
                say("failed by " + cause.getClass().getSimpleName() + ": " + cause.getMessage());
            }
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> {
            say("state " + now);
            if (now == KafkaStreams.State.ERROR) isOver.countDown();
        });
        streams.start();
        isOver.await();
        streams.close(Duration.ofSeconds(5));
        System.exit(1);
    }
}
