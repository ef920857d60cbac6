import static org.apache.pulsar.client.api.SubscriptionType.Exclusive;
import static org.apache.pulsar.client.api.SubscriptionType.Failover;
import static org.apache.pulsar.client.api.SubscriptionType.Shared;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TableView;

/** Compacted topics: readers, consumers and table views that want the last value of each key. */
final class Compaction {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("compacted_reader", world -> reader(world, false)),
            new Scenarios.Scenario("compacted_reader_of_batches", world -> reader(world, true)),
            new Scenarios.Scenario("compacted_consumer", world -> consumer(world, Exclusive, false)),
            new Scenarios.Scenario("compacted_consumer_of_batches", world -> consumer(world, Exclusive, true)),
            new Scenarios.Scenario("compacted_failover", world -> consumer(world, Failover, false)),
            new Scenarios.Scenario("compacted_is_not_for_shared", Compaction::shared),
            new Scenarios.Scenario("compacted_table_view", Compaction::tableView));

    /** Thirty numbers by five keys and one without; k4's last value is null. */
    private static Map<String, Integer> fill(World world, boolean batched) throws Exception {
        Map<String, Integer> last = new TreeMap<>();
        try (Producer<byte[]> producer = world.client
                .newProducer()
                .topic(world.topic)
                .enableBatching(batched)
                .batchingMaxMessages(7)
                .batchingMaxPublishDelay(1, TimeUnit.SECONDS)
                .create()) {
            for (int n = 0; n < 30; n++) {
                producer.newMessage().key("k" + n % 5).value(World.bytes(n)).sendAsync();
                last.put("k" + n % 5, n);
            }
            producer.newMessage().value(World.bytes(99)).sendAsync();
            producer.newMessage().key("k4").value(batched ? new byte[0] : null).sendAsync();
            producer.flush();
        }
        last.remove("k4");
        return last;
    }

    private static void compact(World world) throws Exception {
        String path = "persistent/public/default/" + world.topic + "/compaction";
        World.equal(204, world.request("PUT", path, null), "the status");
        HttpRequest status = HttpRequest.newBuilder(URI.create(world.http + "/admin/v2/" + path)).build();
        World.eventually(
                () -> HttpClient.newHttpClient()
                        .send(status, HttpResponse.BodyHandlers.ofString())
                        .body()
                        .contains("SUCCESS"),
                "it is compacted");
    }

    private static List<Message<byte[]>> readAll(World world, MessageId start, boolean compacted) throws Exception {
        List<Message<byte[]>> found = new ArrayList<>();
        try (Reader<byte[]> reader = world.client
                .newReader()
                .topic(world.topic)
                .startMessageId(start)
                .readCompacted(compacted)
                .create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(World.WAIT_S, TimeUnit.SECONDS);
                World.check(message != null, "there was to be one more after " + found.size());
                found.add(message);
            }
        }
        return found;
    }

    private static Map<String, Integer> values(List<Message<byte[]>> messages) {
        Map<String, Integer> found = new TreeMap<>();
        for (Message<byte[]> message : messages) {
            World.equal(null, found.put(message.getKey(), World.number(message)), "another one of its key");
        }
        return found;
    }

    private static void reader(World world, boolean batched) throws Exception {
        Map<String, Integer> last = fill(world, batched);
        compact(world);
        List<Message<byte[]>> found = readAll(world, MessageId.earliest, true);
        World.equal(last, values(found), "what is left");
        World.equal(32, readAll(world, MessageId.earliest, false).size(), "all of the log");
        List<Message<byte[]>> rest = readAll(world, found.get(1).getMessageId(), true);
        World.equal(found.size() - 2, rest.size(), "what is behind the second one");
        World.equal(found.get(2).getMessageId(), rest.get(0).getMessageId(), "the third one");
        try (Producer<byte[]> producer = world.producer()) {
            producer.newMessage().key("k0").value(World.bytes(100)).send();
        }
        List<Message<byte[]>> more = readAll(world, MessageId.earliest, true);
        World.equal(found.size() + 1, more.size(), "with what came since");
        World.equal(100, World.number(more.get(found.size())), "the last one");
        World.equal(0, readAll(world, MessageId.latest, true).size(), "behind the end");
    }

    private static void consumer(World world, SubscriptionType type, boolean batched) throws Exception {
        Map<String, Integer> last = fill(world, batched);
        compact(world);
        try (Consumer<byte[]> consumer =
                world.consumer("s", type).readCompacted(true).subscribe()) {
            Map<String, Integer> found = new HashMap<>();
            for (int n = 0; n < last.size(); n++) {
                Message<byte[]> message = World.receive(consumer);
                found.put(message.getKey(), World.number(message));
                consumer.acknowledge(message);
            }
            World.equal(last, found, "what is left");
            World.expectSilence(consumer);
            consumer.seek(MessageId.earliest);
            World.equal(last.get("k0"), World.number(World.receive(consumer)), "the first one again");
        }
    }

    private static void shared(World world) throws Exception {
        World.expectFailure(
                PulsarClientException.class,
                () -> world.consumer("s", Shared).readCompacted(true).subscribe());
    }

    private static Map<String, Integer> shown(TableView<byte[]> view) {
        Map<String, Integer> found = new TreeMap<>();
        view.forEach((key, value) -> found.put(key, Integer.parseInt(new String(value, StandardCharsets.UTF_8))));
        return found;
    }

    private static void tableView(World world) throws Exception {
        Map<String, Integer> last = fill(world, false);
        compact(world);
        try (TableView<byte[]> view = world.client
                .newTableViewBuilder(Schema.BYTES)
                .topic(world.topic)
                .create()) {
            World.eventually(() -> last.equals(shown(view)), "the view shows what is left");
            try (Producer<byte[]> producer = world.producer()) {
                producer.newMessage().key("k0").value(World.bytes(100)).send();
            }
            last.put("k0", 100);
            World.eventually(() -> last.equals(shown(view)), "the view shows what came since");
        }
    }
}
