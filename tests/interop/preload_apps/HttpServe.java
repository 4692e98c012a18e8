// HOST PORT: answers /N with N bytes.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.concurrent.Executors;

public class HttpServe {
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress(args[0], Integer.parseInt(args[1])), 16);
        server.createContext("/", exchange -> {
            byte[] body = new byte[Integer.parseInt(exchange.getRequestURI().getPath().substring(1))];
            Arrays.fill(body, (byte) 'x');
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.setExecutor(Executors.newFixedThreadPool(4));
        server.start();
    }
}
