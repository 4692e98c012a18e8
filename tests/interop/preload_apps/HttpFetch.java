// HOST PORT: four threads with a client each, 50 requests of each.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class HttpFetch {
    static volatile boolean failed;

    public static void main(String[] args) throws Exception {
        String host = args[0].contains(":") ? "[" + args[0] + "]" : args[0];
        Thread[] threads = new Thread[4];
        for (int i = 0; i < threads.length; i++) {
            threads[i] = new Thread(() -> {
                try {
                    HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
                    for (int number = 0; number < 50; number++) {
                        int size = 10 + 97 * number;
                        URI uri = URI.create("http://" + host + ":" + args[1] + "/" + size);
                        HttpResponse<String> response =
                                client.send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString());
                        if (response.statusCode() != 200 || !response.body().equals("x".repeat(size)))
                            throw new IllegalStateException("wrong body of " + size);
                    }
                } catch (Exception error) {
                    error.printStackTrace();
                    failed = true;
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        System.out.println(failed ? "failed" : "ok");
        System.exit(failed ? 1 : 0);
    }
}
