import static org.apache.pulsar.client.api.SubscriptionType.Exclusive;
import static org.apache.pulsar.client.api.SubscriptionType.Shared;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.TableView;

/** Readers, seek, last message id, table view. */
final class Positions {
    static final List<Scenarios.Scenario> ALL = List.of(
            new Scenarios.Scenario("seek_by_id", Positions::seekById),
            new Scenarios.Scenario("seek_into_a_batch", Positions::seekIntoABatch),
            new Scenarios.Scenario("seek_by_time", Positions::seekByTime),
            new Scenarios.Scenario("reader", Positions::reader),
            new Scenarios.Scenario("reader_in_batches", Positions::readerInBatches),
            new Scenarios.Scenario("last_message_id", Positions::lastMessageId),
            new Scenarios.Scenario("table_view", Positions::tableView),
            new Scenarios.Scenario("cumulative_ack", Positions::cumulativeAck));

    private static void seekById(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe()) {
            List<MessageId> ids = world.send(0, 20);
            World.expect(consumer, 0, 20);
            consumer.seek(ids.get(12));
            World.expect(consumer, 13, 20);
            consumer.seek(MessageId.earliest);
            World.expect(consumer, 0, 20);
            consumer.seek(MessageId.latest);
            world.send(20, 22);
            World.expect(consumer, 20, 22);
        }
        try (Consumer<byte[]> inclusive =
                world.consumer("t", Shared).startMessageIdInclusive().subscribe()) {
            Message<byte[]> third = null;
            for (int n = 0; n < 22; n++) {
                Message<byte[]> message = World.receive(inclusive);
                third = World.number(message) == 3 ? message : third;
            }
            inclusive.seek(third.getMessageId());
            World.equal(3, World.number(World.receive(inclusive)), "the message sought");
        }
    }

    private static void seekIntoABatch(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe()) {
            List<MessageId> ids = world.sendBatched(0, 20);
            World.expect(consumer, 0, 20);
            consumer.seek(ids.get(12));
            World.expect(consumer, 13, 20);
        }
    }

    private static void seekByTime(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe()) {
            world.send(0, 10);
            Message<byte[]> last = null;
            for (int n = 0; n < 10; n++) {
                last = World.receive(consumer);
            }
            long between = last.getPublishTime() + 1;
            World.eventually(() -> System.currentTimeMillis() > between, "the clock goes on");
            world.send(10, 20);
            consumer.seek(between);
            World.expect(consumer, 10, 20);
            consumer.seek(between - 3_600_000);
            World.expect(consumer, 0, 20);
        }
    }

    private static void reader(World world) throws Exception {
        List<MessageId> ids = world.send(0, 10);
        try (Reader<byte[]> all = reader(world, MessageId.earliest, false);
                Reader<byte[]> from = reader(world, ids.get(4), false);
                Reader<byte[]> at = reader(world, ids.get(4), true);
                Reader<byte[]> end = reader(world, MessageId.latest, false)) {
            expectRest(all, 0, 10);
            expectRest(from, 5, 10);
            expectRest(at, 4, 10);
            World.check(!end.hasMessageAvailable(), "the end has messages");
            world.send(10, 12);
            expectRest(end, 10, 12);
            expectRest(all, 10, 12);
            at.seek(ids.get(7));
            expectRest(at, 7, 12);
        }
    }

    private static void readerInBatches(World world) throws Exception {
        List<MessageId> ids = world.sendBatched(0, 20);
        try (Reader<byte[]> from = reader(world, ids.get(12), false);
                Reader<byte[]> at = reader(world, ids.get(12), true)) {
            expectRest(from, 13, 20);
            expectRest(at, 12, 20);
        }
    }

    private static Reader<byte[]> reader(World world, MessageId start, boolean inclusive) throws Exception {
        var builder = world.client.newReader().topic(world.topic).startMessageId(start);
        return (inclusive ? builder.startMessageIdInclusive() : builder).create();
    }

    private static void expectRest(Reader<byte[]> reader, int from, int to) throws Exception {
        for (int n = from; n < to; n++) {
            World.check(reader.hasMessageAvailable(), "no message is available before " + n);
            Message<byte[]> message = reader.readNext(World.WAIT_S, TimeUnit.SECONDS);
            World.check(message != null, "no message came for " + n);
            World.equal(n, World.number(message), "the next message");
        }
        World.check(!reader.hasMessageAvailable(), "a message is available after " + to);
    }

    private static void lastMessageId(World world) throws Exception {
        try (Consumer<byte[]> consumer = world.consumer("s", Exclusive).subscribe()) {
            MessageIdAdv empty = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            World.equal(-1L, empty.getEntryId(), "the entry of an empty topic");
            List<MessageId> ids = world.sendBatched(0, 5);
            MessageIdAdv last = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            World.equal(0, last.compareTo(ids.get(4)), "against the last one sent");
            World.equal(4, last.getBatchIndex(), "the index in the batch");
        }
    }

    private static void tableView(World world) throws Exception {
        try (Producer<String> producer =
                world.client.newProducer(Schema.STRING).topic(world.topic).create()) {
            for (int n = 0; n < 30; n++) {
                producer.newMessage().key("key-" + n % 10).value("old " + n).send();
            }
            Map<String, String> heard = new ConcurrentHashMap<>();
            try (TableView<String> view = world.client.newTableView(Schema.STRING).topic(world.topic).create()) {
                World.eventually(() -> view.size() == 10, "the view has all keys");
                World.equal("old 27", view.get("key-7"), "the last value");
                view.listen((key, value) -> heard.put(key, String.valueOf(value)));
                producer.newMessage().key("key-7").value("new").send();
                producer.newMessage().key("key-8").value(null).send();
                World.eventually(() -> "new".equals(view.get("key-7")), "the view shows a new value");
                World.eventually(() -> !view.containsKey("key-8"), "a null value removes a key");
                World.eventually(() -> "new".equals(heard.get("key-7")), "the listener has heard");
            }
        }
    }

    private static void cumulativeAck(World world) throws Exception {
        try (Consumer<byte[]> consumer =
                world.consumer("s", Exclusive).enableBatchIndexAcknowledgment(true).subscribe()) {
            world.sendBatched(0, 20);
            for (int n = 0; n < 20; n++) {
                Message<byte[]> message = World.receive(consumer);
                if (n == 12) {
                    consumer.acknowledgeCumulative(message);
                }
            }
        }
        try (Consumer<byte[]> again = world.consumer("s", Exclusive).subscribe()) {
            World.expect(again, 13, 20);
        }
    }
}
