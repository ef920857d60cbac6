// Kafka's tools, one after the other in one JVM.
//
// Each line of standard input is a command: the tool's class and its arguments, with a tab between two.  What a tool
// prints, and behind it its errors where it fails, is followed by an end of line and the line "ended with CODE".

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.utils.Exit;

public class Tools {
    static volatile CompletableFuture<Integer> code;

    static void run(String[] words) {
        try {
            var main = Class.forName(words[0]).getMethod("main", String[].class);
            main.invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            code.complete(0);
        } catch (InvocationTargetException wrapper) {
            wrapper.getCause().printStackTrace(System.out);
            code.complete(1);
        } catch (ReflectiveOperationException failure) {
            failure.printStackTrace(System.out);
            code.complete(1);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var errors = new ByteArrayOutputStream();
        System.setErr(new PrintStream(errors, true));
        // A tool that ends the process goes no further, as it would not: some catch whatever is thrown.
        Exit.setExitProcedure((status, message) -> {
            code.complete(status);
            try {
                new CountDownLatch(1).await();
            } catch (InterruptedException never) {
                throw new AssertionError(never);
            }
        });
        var commands = new BufferedReader(new InputStreamReader(System.in));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            String[] words = line.split("\t");
            code = new CompletableFuture<>();
            new Thread(() -> run(words)).start();
            int ended = code.get();
            if (ended != 0) System.out.print(errors);
            errors.reset();
            System.out.println("\nended with " + ended);  // not every tool ends its last line
            System.out.flush();
        }
        System.exit(0);  // some tools leave threads behind
    }
}
