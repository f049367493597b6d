package org.example.booking;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Leasehold;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Primary;
import org.springframework.data.redis.core.StringRedisTemplate;

/** Two services, on a real server. LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run. */
@Timeout(300)
class BookingTest {
    private static final HttpClient HTTP = HttpClient.newHttpClient();
    private static Process server;
    private static ConfigurableApplicationContext one;
    private static ConfigurableApplicationContext two;

    /** What happens while the first service asks its bank. */
    private static volatile Runnable meanwhile = () -> {};

    static class Interfering {
        @Bean
        @Primary
        Bank interfering() {
            return new Bank() {
                @Override
                void authorize(String guest) throws InterruptedException {
                    super.authorize(guest);
                    meanwhile.run();
                }
            };
        }
    }

    @BeforeAll
    static void start() throws Exception {
        int port;
        try (ServerSocket socket = new ServerSocket(0)) {
            port = socket.getLocalPort();
        }
        String program = System.getenv().getOrDefault("LEASEHOLD_SERVER", "redis-server");
        String module = System.getenv("LEASEHOLD_MODULE");
        String path = module != null ? module : Path.of("../../target/release/libleasehold.so").toAbsolutePath().toString();
        Path dir = Files.createTempDirectory("booking-");
        server = new ProcessBuilder(program, "--port", "" + port, "--dir", "" + dir, "--save", "", "--logfile", dir + "/log", "--loadmodule", path).start();
        one = service(port, Booking.class, Interfering.class);
        two = service(port, Booking.class);
        for (long end = System.nanoTime() + 20_000_000_000L; !isUp(port); Thread.sleep(5)) {
            assertTrue(System.nanoTime() < end && server.isAlive(), "the server does not answer");
        }
    }

    private static boolean isUp(int port) {
        try (Socket socket = new Socket("127.0.0.1", port)) {
            return socket.isConnected();
        } catch (IOException e) {
            return false;
        }
    }

    private static ConfigurableApplicationContext service(int port, Class<?>... sources) {
        return new SpringApplicationBuilder(sources).run(
                "--server.port=0",
                "--spring.data.redis.url=redis://127.0.0.1:" + port,
                "--spring.datasource.url=jdbc:h2:mem:seats",
                // For a machine that is busy with other things.
                "--leasehold.patience=5s",
                "--leasehold.response=10s",
                "--leasehold.within=20s");
    }

    @AfterAll
    static void stop() throws Exception {
        one.close();
        two.close();
        server.destroyForcibly().waitFor();
    }

    private static CompletableFuture<HttpResponse<String>> book(ConfigurableApplicationContext service, String seat, String guest) {
        URI uri = URI.create("http://127.0.0.1:" + service.getEnvironment().getProperty("local.server.port") + "/seats/" + seat);
        HttpRequest request = HttpRequest.newBuilder(uri)
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString("{\"guest\":\"" + guest + "\"}"))
                .build();
        return HTTP.sendAsync(request, HttpResponse.BodyHandlers.ofString());
    }

    private static int code(CompletableFuture<HttpResponse<String>> answer) throws Exception {
        return answer.get(60, TimeUnit.SECONDS).statusCode();
    }

    @Test
    void oneOfManyGuestsHasTheSeat() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> answers = new ArrayList<>();
        for (int guest = 0; guest < 6; guest++) {
            answers.add(book(guest % 2 == 0 ? one : two, "12A", "guest" + guest));
        }
        List<Integer> codes = new ArrayList<>();
        for (CompletableFuture<HttpResponse<String>> each : answers) {
            codes.add(code(each));
        }
        assertEquals(1, Collections.frequency(codes, 201), codes.toString());
        assertEquals(5, Collections.frequency(codes, 409), codes.toString());
        assertEquals("{\"seat\":\"7F\",\"guest\":\"carla\"}", book(one, "7F", "carla").get().body());
        assertEquals(422, code(book(one, "7G", " ")));
    }

    @Test
    void aGuestDoesNotWaitForLong() throws Exception {
        var lease = two.getBean(Leasehold.class).acquire("3C");
        HttpResponse<String> answer = book(one, "3C", "dan").get(60, TimeUnit.SECONDS);
        assertEquals(503, answer.statusCode());
        assertEquals("1", answer.headers().firstValue("Retry-After").orElseThrow());
        lease.release();
    }

    @Test
    void whoHasLostTheLockAndWasOvertakenBooksNothing() throws Exception {
        meanwhile = () -> {
            two.getBean(StringRedisTemplate.class).delete("seat:1B");
            assertEquals(201, book(two, "1B", "ben").join().statusCode());
        };
        try {
            assertEquals(409, code(book(one, "1B", "anna")));
        } finally {
            meanwhile = () -> {};
        }
        assertTrue(two.getBean(Book.class).isTaken("1B", Long.MAX_VALUE));
    }
}
