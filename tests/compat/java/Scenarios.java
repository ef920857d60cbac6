import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the scenarios of Pulsar's Java client one after another against a broker.
 *
 * Usage: Scenarios SERVICE_URL HTTP_URL [PART_OF_A_NAME...]. One line for each: PASSED|FAILED name seconds text.
 * Everything that went wrong goes to standard error in full.
 */
public final class Scenarios {
    static final int SECONDS_MAX = 90;

    interface Body {
        void run(World world) throws Exception;
    }

    record Scenario(String name, Body body) {}

    public static void main(String[] words) throws Exception {
        List<String> wanted = List.of(words).subList(2, words.length);
        ExecutorService executor = Executors.newCachedThreadPool(task -> {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        });
        for (List<Scenario> group :
                List.of(Subscriptions.ALL, KeyShared.ALL, Positions.ALL, Features.ALL, Topics.ALL, Compaction.ALL)) {
            for (Scenario scenario : group) {
                if (wanted.isEmpty() || wanted.stream().anyMatch(scenario.name::contains)) {
                    runOne(executor, scenario, words[0], words[1]);
                }
            }
        }
        System.out.println("DONE");
        System.out.flush();
        System.exit(0); // a scenario that hangs leaves threads behind
    }

    private static void runOne(ExecutorService executor, Scenario scenario, String url, String http) {
        long began = System.nanoTime();
        String status = "PASSED";
        String text = "";
        Future<?> future = executor.submit(() -> {
            try (World world = new World(url, http, scenario.name)) {
                scenario.body.run(world);
            }
            return null;
        });
        try {
            future.get(SECONDS_MAX, TimeUnit.SECONDS);
        } catch (TimeoutException error) {
            status = "FAILED";
            text = "not done after " + SECONDS_MAX + " s";
            future.cancel(true);
        } catch (Exception error) {
            status = "FAILED";
            Throwable cause = error.getCause() == null ? error : error.getCause();
            StringWriter trace = new StringWriter();
            cause.printStackTrace(new PrintWriter(trace));
            System.err.println(scenario.name + ": " + trace);
            text = String.valueOf(cause).lines().findFirst().orElse("");
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        System.out.printf(Locale.ROOT, "%s %s %.1f %s%n", status, scenario.name, seconds, text);
        System.out.flush();
    }
}
