import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.PrintStream;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.admin.cli.PulsarAdminTool;
import org.apache.pulsar.client.api.Authentication;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.impl.auth.oauth2.AuthenticationFactoryOAuth2;

/**
 * Pulsar's Java client and pulsar-admin log in, all in one JVM.
 *
 * Usage: PulsarLogins LOGINS [PART_OF_AN_ID...]. One line for each login: SEEN client::mechanism::case seconds what.
 */
public final class PulsarLogins {
    static final String LET_IN = "let in";
    static final String PACKAGE = "org.apache.pulsar.client.impl.auth.";
    static final String NO_LOGIN = "Authentication required";
    static final int WAIT_S = 30;
    static final int REFUSED_S = 5; // of a client that tries again for ever

    interface Attempt {
        String with(Map<String, String> login, String value) throws Exception;
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] words) throws Exception {
        Map<String, List<Map<String, String>>> logins = new ObjectMapper().readValue(new File(words[0]), Map.class);
        List<String> wanted = Arrays.asList(words).subList(1, words.length);
        for (Map<String, String> login : logins.get("pulsar")) {
            attempt(wanted, "pulsar-client-java", login, PulsarLogins::byClient);
            attempt(wanted, "pulsar-admin", login, PulsarLogins::byAdmin);
        }
        System.exit(0);
    }

    static void attempt(List<String> wanted, String client, Map<String, String> login, Attempt attempt) {
        String id = client + "::" + login.get("mechanism") + "::" + login.get("case");
        if (!wanted.isEmpty() && wanted.stream().noneMatch(id::contains)) {
            return;
        }
        long began = System.nanoTime();
        String what;
        try {
            what = attempt.with(login, id);
        } catch (Exception error) {
            what = error.getClass().getSimpleName();
            error.printStackTrace();
        }
        System.out.printf(Locale.ROOT, "SEEN %s %.1f %s%n", id, (System.nanoTime() - began) / 1e9, what);
        System.out.flush();
    }

    static Authentication authentication(Map<String, String> login) throws Exception {
        return switch (login.get("mechanism")) {
            case "token", "TLS" -> AuthenticationFactory.token(login.get("token"));
            case "mTLS" -> AuthenticationFactory.TLS(login.get("certificate"), login.get("key"));
            case "oauth2" -> AuthenticationFactoryOAuth2.clientCredentials(
                    new URL(login.get("issuer")), new URL("file://" + login.get("credentials")), login.get("audience"));
            default -> AuthenticationFactory.create(plugin(login), parameters(login));
        };
    }

    /** As in client.conf. */
    static String plugin(Map<String, String> login) {
        return PACKAGE
                + switch (login.get("mechanism")) {
                    case "token", "TLS" -> "AuthenticationToken";
                    case "mTLS" -> "AuthenticationTls";
                    case "oauth2" -> "oauth2.AuthenticationOAuth2";
                    default -> "AuthenticationBasic";
                };
    }

    static String parameters(Map<String, String> login) {
        return switch (login.get("mechanism")) {
            case "token", "TLS" -> "token:" + login.get("token");
            case "mTLS" -> "tlsCertFile:" + login.get("certificate") + ",tlsKeyFile:" + login.get("key");
            case "oauth2" -> String.format(
                    "{\"type\":\"client_credentials\",\"issuerUrl\":\"%s\",\"privateKey\":\"file://%s\",\"audience\":\"%s\"}",
                    login.get("issuer"), login.get("credentials"), login.get("audience"));
            default -> String.format(
                    "{\"userId\":\"%s\",\"password\":\"%s\"}", login.get("user"), login.get("password"));
        };
    }

    /** A message is written and read again. */
    static String byClient(Map<String, String> login, String value) throws Exception {
        int patience = login.get("case").equals("right") ? WAIT_S : REFUSED_S;
        try (PulsarClient client = PulsarClient.builder()
                        .serviceUrl(login.get("url"))
                        .tlsTrustCertsFilePath(login.get("ca"))
                        .enableTlsHostnameVerification(true)
                        .authentication(authentication(login))
                        .operationTimeout(patience, TimeUnit.SECONDS)
                        .lookupTimeout(patience, TimeUnit.SECONDS)
                        .build();
                var reader = client.newReader(Schema.BYTES)
                        .topic(login.get("topic"))
                        .startMessageId(MessageId.latest)
                        .create();
                var producer = client.newProducer(Schema.BYTES).topic(login.get("topic")).create()) {
            producer.send(value.getBytes(StandardCharsets.UTF_8));
            Message<byte[]> found = reader.readNext(WAIT_S, TimeUnit.SECONDS);
            while (found != null && !new String(found.getData(), StandardCharsets.UTF_8).equals(value)) {
                found = reader.readNext(WAIT_S, TimeUnit.SECONDS); // others write to this topic at the same time
            }
            return found != null ? LET_IN : "nothing to read";
        } catch (PulsarClientException error) {
            System.err.println(error);
            return error.getClass().getSimpleName();
        }
    }

    /** The class behind the script, which is for its package alone. */
    static final class Tool extends PulsarAdminTool {
        Tool(Properties settings) throws Exception {
            super(settings);
        }

        @Override
        public boolean run(String[] arguments) {
            return super.run(arguments);
        }
    }

    /** pulsar-admin with the settings of a client.conf. */
    static String byAdmin(Map<String, String> login, String value) throws Exception {
        Properties settings = new Properties();
        settings.put("webServiceUrl", login.get("web") + "/");
        settings.put("authPlugin", plugin(login));
        settings.put("authParams", parameters(login));
        settings.put("tlsTrustCertsFilePath", login.get("ca"));
        settings.put("tlsEnableHostnameVerification", "true");
        return tool(settings, "topics", "partitioned-stats", login.get("topic"));
    }

    /** What the tool gives as the reason where it does not do what it should. */
    static String tool(Properties settings, String... command) throws Exception {
        PrintStream out = System.out;
        PrintStream err = System.err;
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        boolean done;
        try (PrintStream both = new PrintStream(said, true)) {
            System.setOut(both);
            System.setErr(both);
            done = new Tool(settings).run(command);
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        String text = said.toString(StandardCharsets.UTF_8);
        if (done) {
            return text.contains("msgRateIn") ? LET_IN : "no statistics";
        }
        err.println(text);
        if (text.contains(NO_LOGIN)) {
            return NO_LOGIN; // which stands in JSON of several lines where the server is Apache Pulsar
        }
        String reason = text.lines().filter(line -> line.contains("eason: ")).findFirst().orElse("no reason");
        return reason.substring(reason.lastIndexOf("eason: ") + 7);
    }
}
