import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.net.HttpURLConnection;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Base64;

/**
 * Plays the steps on standard input with one of Java's clients: see python.py for
 * the lines. Proxy and trust come from system properties, the user name from LOGIN:
 * neither client sends one before it was asked, and the proxy does not ask.
 */
public class Main {
    static final String LOGIN = System.getenv("LOGIN"); // null: none
    static final int TIMEOUT = 60_000;

    public static void main(String[] args) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] step = line.split("\t", -1);
            String result;
            try {
                result = args[0].equals("HttpClient") ? modern(client, step) : classic(step);
            } catch (Exception e) {
                result = "0\t\t\t\t" + oneLine(e.toString());
            }
            System.out.println(result);
        }
        System.exit(0);
    }

    static String basic() {
        return "Basic " + Base64.getEncoder().encodeToString(LOGIN.getBytes());
    }

    static String modern(HttpClient client, String[] step) throws Exception {
        HttpRequest.BodyPublisher body =
            step[3].isEmpty() ? HttpRequest.BodyPublishers.noBody() : HttpRequest.BodyPublishers.ofString(step[3]);
        HttpRequest.Builder b = HttpRequest.newBuilder(URI.create(step[1]))
            .method(step[0], body).timeout(Duration.ofMillis(TIMEOUT));
        if (LOGIN != null) {
            b.header("Proxy-Authorization", basic());
        }
        if (!step[2].isEmpty()) {
            b.header("X-Idempotency-Key", step[2]);
        }
        HttpResponse<String> r = client.send(b.build(), HttpResponse.BodyHandlers.ofString());
        return String.join("\t", "" + r.statusCode(), field(r, "X-Retry-Count"), field(r, "X-Retry-Reason"),
            field(r, "Idempotency-Replayed"), oneLine(r.body()));
    }

    static String field(HttpResponse<String> r, String name) {
        return r.headers().firstValue(name).orElse("");
    }

    static String classic(String[] step) throws Exception {
        HttpURLConnection c = (HttpURLConnection) URI.create(step[1]).toURL().openConnection();
        c.setReadTimeout(TIMEOUT);
        c.setRequestMethod(step[0]);
        if (LOGIN != null) {
            c.setRequestProperty("Proxy-Authorization", basic());
        }
        if (!step[2].isEmpty()) {
            c.setRequestProperty("X-Idempotency-Key", step[2]);
        }
        if (!step[3].isEmpty()) {
            c.setDoOutput(true);
            c.getOutputStream().write(step[3].getBytes());
        }
        int status = c.getResponseCode();
        String body;
        try (InputStream s = status < 400 ? c.getInputStream() : c.getErrorStream()) {
            body = s == null ? "" : new String(s.readAllBytes());
        }
        return String.join("\t", "" + status, field(c, "X-Retry-Count"), field(c, "X-Retry-Reason"),
            field(c, "Idempotency-Replayed"), oneLine(body));
    }

    static String field(HttpURLConnection c, String name) {
        String v = c.getHeaderField(name);
        return v == null ? "" : v;
    }

    static String oneLine(String text) {
        return text.strip().replaceAll("\\s+", " ");
    }
}
