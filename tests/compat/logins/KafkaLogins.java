import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Base64;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.security.token.delegation.DelegationToken;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.ConsoleProducer;
import org.apache.kafka.tools.TopicCommand;
import org.apache.kafka.tools.consumer.ConsoleConsumer;

/**
 * Kafka's Java client and Kafka's console tools log in, all in one JVM.
 *
 * Usage: KafkaLogins LOGINS [PART_OF_AN_ID...]. One line for each login: SEEN client::mechanism::case seconds what.
 */
public final class KafkaLogins {
    static final String LET_IN = "let in";
    static final int WAIT_MS = 30_000;
    static final String REASON = "Error while executing topic command : ";
    static int code; // that the tool which runs has ended with; what it says after that is about our way to stop it

    interface Attempt {
        String with(Map<String, String> login, Properties settings, String value) throws Exception;
    }

    /** Thrown where a tool would end the JVM. */
    static final class Ended extends Error {}

    @SuppressWarnings("unchecked")
    public static void main(String[] words) throws Exception {
        Map<String, List<Map<String, String>>> logins = new ObjectMapper().readValue(new File(words[0]), Map.class);
        List<String> wanted = Arrays.asList(words).subList(1, words.length);
        PrintStream out = System.out;
        Exit.setExitProcedure((status, message) -> {
            code = code < 0 ? status : code;
            throw new Ended();
        });
        Exit.setShutdownHookAdder((name, hook) -> {});
        for (Map<String, String> login : logins.get("kafka")) {
            attempt(out, wanted, "kafka-clients", login, KafkaLogins::byClient);
            attempt(out, wanted, "kafka-tools", login, KafkaLogins::byTools);
        }
        System.exit(0);
    }

    static void attempt(
            PrintStream out, List<String> wanted, String client, Map<String, String> login, Attempt attempt) {
        String id = client + "::" + login.get("mechanism") + "::" + login.get("case");
        if (!wanted.isEmpty() && wanted.stream().noneMatch(id::contains)) {
            return;
        }
        long began = System.nanoTime();
        String what;
        try {
            what = attempt.with(login, settings(login), id);
        } catch (Throwable error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            what = cause.getClass().getSimpleName();
            cause.printStackTrace();
        }
        out.printf(Locale.ROOT, "SEEN %s %.1f %s%n", id, (System.nanoTime() - began) / 1e9, what);
        out.flush();
    }

    static Properties settings(Map<String, String> login) throws Exception {
        Properties settings = connection(login);
        String mechanism = login.get("sasl");
        if (login.get("mechanism").equals("delegation-token")) {
            // Made by the owner's password; the wrong one is another secret for the same token.
            DelegationToken made = delegationToken(login);
            byte[] secret = login.get("case").equals("right") ? made.hmac() : new byte[made.hmac().length];
            String shown = Base64.getEncoder().encodeToString(secret);
            jaas(settings, mechanism, made.tokenInfo().tokenId(), shown, " tokenauth=\"true\"");
        } else if ("OAUTHBEARER".equals(mechanism)) {
            String packageName = "org.apache.kafka.common.security.oauthbearer.";
            System.setProperty("org.apache.kafka.sasl.oauthbearer.allowed.urls", login.get("token_url"));
            settings.put("sasl.mechanism", mechanism);
            settings.put("sasl.oauthbearer.token.endpoint.url", login.get("token_url"));
            settings.put("sasl.login.callback.handler.class", packageName + "OAuthBearerLoginCallbackHandler");
            settings.put(
                    "sasl.jaas.config",
                    packageName + "OAuthBearerLoginModule required clientId=\"" + login.get("client_id")
                            + "\" clientSecret=\"" + login.get("client_secret") + "\";");
        } else if (mechanism != null) {
            jaas(settings, mechanism, login.get("user"), login.get("password"), "");
        }
        return settings;
    }

    static Properties connection(Map<String, String> login) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", login.get("address"));
        settings.put("security.protocol", login.get("protocol"));
        settings.put("ssl.truststore.type", "PEM");
        settings.put("ssl.truststore.location", login.get("ca"));
        if (login.containsKey("both")) {
            settings.put("ssl.keystore.type", "PEM");
            settings.put("ssl.keystore.location", login.get("both"));
        }
        return settings;
    }

    static void jaas(Properties settings, String mechanism, String user, String password, String more) {
        String module = mechanism.equals("PLAIN") ? "plain.PlainLoginModule" : "scram.ScramLoginModule";
        settings.put("sasl.mechanism", mechanism);
        settings.put(
                "sasl.jaas.config",
                "org.apache.kafka.common.security." + module + " required username=\"" + user + "\" password=\""
                        + password + "\"" + more + ";");
    }

    static DelegationToken delegationToken(Map<String, String> login) throws Exception {
        Properties settings = connection(login);
        jaas(settings, "PLAIN", login.get("user"), login.get("password"), "");
        try (Admin admin = Admin.create(settings)) {
            return admin.createDelegationToken().delegationToken().get();
        }
    }

    /** A record is written and read again. */
    static String byClient(Map<String, String> login, Properties settings, String value) throws Exception {
        Properties writing = new Properties();
        writing.putAll(settings);
        writing.put("max.block.ms", String.valueOf(WAIT_MS));
        long offset;
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            offset = producer.send(new ProducerRecord<>(login.get("topic"), value)).get().offset();
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            TopicPartition partition = new TopicPartition(login.get("topic"), 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            var found = consumer.poll(Duration.ofMillis(WAIT_MS)).iterator();
            return found.hasNext() && found.next().value().equals(value) ? LET_IN : "nothing to read";
        }
    }

    interface Tool {
        void run(String... arguments) throws Exception;
    }

    /** kafka-topics, kafka-console-producer and kafka-console-consumer with one file of settings. */
    static String byTools(Map<String, String> login, Properties settings, String value) throws Exception {
        Path file = Files.createTempFile("login", ".properties");
        try {
            try (var writer = Files.newBufferedWriter(file)) {
                settings.store(writer, null);
            }
            String[] common = {
                "--bootstrap-server", login.get("address"), "--command-config", file.toString(),
                "--topic", login.get("topic")
            };
            String described = tool(TopicCommand::main, "", with(common, "--describe"));
            if (!described.startsWith("0 ")) {
                return ended("kafka-topics", described);
            }
            String produced = tool(ConsoleProducer::main, value + "\n", common);
            if (!produced.startsWith("0 ")) {
                return ended("kafka-console-producer", produced);
            }
            String[] reading = {"--partition", "0", "--offset", "earliest", "--max-messages", "1"};
            String consumed = tool(ConsoleConsumer::main, "", with(common, reading));
            if (!consumed.startsWith("0 ") || !consumed.contains("::")) {
                return ended("kafka-console-consumer", consumed);
            }
            return LET_IN;
        } finally {
            Files.delete(file);
        }
    }

    static String[] with(String[] common, String... more) {
        String[] all = Arrays.copyOf(common, common.length + more.length);
        System.arraycopy(more, 0, all, common.length, more.length);
        return all;
    }

    static String ended(String tool, String said) {
        System.err.println(tool + ": " + said);
        String reason = said.lines().filter(line -> line.contains(REASON)).findFirst().orElse("no reason");
        return tool + ": " + reason.substring(reason.indexOf(REASON) + REASON.length());
    }

    /** The code that a tool ends with, and what it prints. */
    static String tool(Tool tool, String stdin, String... arguments) throws IOException {
        InputStream in = System.in;
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        code = -1;
        try (PrintStream both = new PrintStream(said, true)) {
            System.setIn(new ByteArrayInputStream(stdin.getBytes(StandardCharsets.UTF_8)));
            System.setOut(both);
            System.setErr(both);
            tool.run(arguments);
        } catch (Ended ended) {
            // Its code is there.
        } catch (Exception error) {
            error.printStackTrace(err);
        } finally {
            System.setIn(in);
            System.setOut(out);
            System.setErr(err);
        }
        return Math.max(code, 0) + " " + said.toString(StandardCharsets.UTF_8);
    }
}
