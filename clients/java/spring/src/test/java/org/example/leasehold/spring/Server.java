package org.example.leasehold.spring;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.example.leasehold.Leasehold;

/** A real server, and locks on it. LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run. */
final class Server implements AutoCloseable {
    private static final String PROGRAM = System.getenv().getOrDefault("LEASEHOLD_SERVER", "redis-server");

    private final Process process;
    final int port;
    final RedisClient client;
    final RedisCommands<String, String> commands;
    final Leasehold locks;

    static Server withModule() throws Exception {
        return new Server("--loadmodule", module());
    }

    /** Of one node, which has all slots. */
    static Server cluster() throws Exception {
        Server server = new Server("--loadmodule", module(), "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1");
        server.commands.clusterAddSlots(IntStream.range(0, 16_384).toArray());
        connected(() -> {
            if (!server.commands.clusterInfo().contains("cluster_state:ok")) {
                throw new RedisConnectionException("not yet");
            }
            return server;
        });
        return server;
    }

    private static String module() {
        String module = System.getenv("LEASEHOLD_MODULE");
        return module != null ? module : Path.of("../../../target/release/libleasehold.so").toAbsolutePath().toString();
    }

    private Server(String... more) throws Exception {
        port = freePort();
        String dir = Files.createTempDirectory("leasehold-spring-").toString();
        List<String> words = new ArrayList<>(List.of(PROGRAM, "--port", "" + port, "--dir", dir, "--save", "", "--logfile", dir + "/log"));
        words.addAll(List.of(more));
        process = new ProcessBuilder(words).start();
        client = RedisClient.create(RedisURI.create("127.0.0.1", port));
        commands = connected(() -> client.connect().sync());
        locks = Leasehold.over(client);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static <T> T connected(Supplier<T> connect) throws InterruptedException {
        for (long end = System.nanoTime() + 20_000_000_000L; ; Thread.sleep(5)) {
            try {
                return connect.get();
            } catch (RedisConnectionException e) {
                if (System.nanoTime() > end) {
                    throw e;
                }
            }
        }
    }

    /** Names this server the primary. */
    record Sentinel(Process process, int port) implements AutoCloseable {
        @Override
        public void close() {
            process.destroyForcibly().onExit().join();
        }
    }

    Sentinel sentinel() throws Exception {
        int own = freePort();
        Path file = Files.createTempDirectory("leasehold-spring-").resolve("sentinel.conf");
        Files.writeString(file, "port " + own + "\nsentinel monitor primary 127.0.0.1 " + port + " 1\n");
        Process sentinel = new ProcessBuilder(PROGRAM, file.toString(), "--sentinel")
                .redirectOutput(ProcessBuilder.Redirect.DISCARD)
                .start();
        connected(() -> {
            try (RedisClient asks = RedisClient.create(RedisURI.create("127.0.0.1", own))) {
                return asks.connectSentinel().sync().getMasterAddrByName("primary");
            }
        });
        return new Sentinel(sentinel, own);
    }

    @Override
    public void close() {
        locks.close();
        client.shutdown(0, 1, TimeUnit.SECONDS);
        process.destroyForcibly().onExit().join();
    }
}
