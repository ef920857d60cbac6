import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import sun.security.tools.keytool.Main;

/** keytool for each line of the input, in one JVM: a line has the arguments, with tabs between them. */
public final class Keytool {
    public static void main(String[] none) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Main.main(line.split("\t", -1)); // a failure ends the JVM with 1
        }
    }
}
