package org.example.leasehold.testkit;

import io.lettuce.core.Range;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.sentinel.api.sync.RedisSentinelCommands;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A real server. LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run. */
public final class Server implements AutoCloseable {
    private static final String PROGRAM = System.getenv().getOrDefault("LEASEHOLD_SERVER", "redis-server");

    private final List<String> words;
    private Process process;
    public final int port;
    public final RedisURI uri;
    public final RedisClient client;
    private RedisCommands<String, String> commands;

    private static String module() {
        String module = System.getenv("LEASEHOLD_MODULE");
        return module != null ? module : Path.of("../../../target/release/libleasehold.so").toAbsolutePath().toString();
    }

    public static Server withModule() {
        return new Server("--loadmodule", module());
    }

    /** A cluster of one node, which has all slots. */
    public static Server cluster() {
        Server server = new Server("--loadmodule", module(), "--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1");
        server.ask().clusterAddSlotsRange(Range.create(0, 16_383));
        Until.holds(() -> server.ask().clusterInfo().contains("cluster_state:ok"));
        return server;
    }

    /** One node of a cluster, which has to meet the others. */
    public static Server plainCluster(int firstSlot, int lastSlot) {
        Server server = new Server("--cluster-enabled", "yes", "--cluster-announce-ip", "127.0.0.1");
        server.ask().clusterAddSlotsRange(Range.create(firstSlot, lastSlot));
        return server;
    }

    public static Server plain() {
        return new Server();
    }

    private Server(String... more) {
        port = freePort();
        uri = RedisURI.create("127.0.0.1", port);
        String dir = newFolder().toString();
        words = new ArrayList<>(List.of(PROGRAM, "--port", "" + port, "--dir", dir, "--save", "", "--logfile", dir + "/log"));
        words.addAll(List.of(more));
        client = RedisClient.create(uri);
        start();
    }

    private static int freePort() {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Path newFolder() {
        try {
            return Files.createTempDirectory("leasehold-java-");
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    public void start() {
        process = started(words);
        Until.holds(() -> {
            if (!process.isAlive()) {
                throw new IllegalStateException("the server has ended: " + words);
            }
            try {
                commands = client.connect().sync();
                return "PONG".equals(commands.ping());
            } catch (RuntimeException e) {
                return false;
            }
        });
    }

    private static Process started(List<String> words) {
        try {
            return new ProcessBuilder(words).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    public RedisCommands<String, String> ask() {
        return commands;
    }

    public void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public void kill() {
        process.destroyForcibly();
        try {
            process.waitFor(20, TimeUnit.SECONDS);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void close() {
        signal("CONT");
        kill();
        client.shutdown(0, 1, TimeUnit.SECONDS);
    }

    /** Names this server the primary. */
    public record Sentinel(Process process, int port) implements AutoCloseable {
        /** From now on, that is the primary: as after a fail-over that the former one has not noticed. */
        public void names(Server server) {
            try (RedisClient asks = RedisClient.create(RedisURI.create("127.0.0.1", port))) {
                RedisSentinelCommands<String, String> commands = asks.connectSentinel().sync();
                commands.remove("primary");
                commands.monitor("primary", "127.0.0.1", server.port, 1);
            }
        }

        @Override
        public void close() {
            process.destroyForcibly().onExit().join();
        }
    }

    public Sentinel sentinel() {
        int own = freePort();
        Path file = newFolder().resolve("sentinel.conf");
        try {
            Files.writeString(file, "port " + own + "\nsentinel monitor primary 127.0.0.1 " + port + " 1\n");
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        Sentinel sentinel = new Sentinel(started(List.of(PROGRAM, file.toString(), "--sentinel")), own);
        Until.holds(() -> {
            try (RedisClient asks = RedisClient.create(RedisURI.create("127.0.0.1", own))) {
                return asks.connectSentinel().sync().getMasterAddrByName("primary") != null;
            } catch (RuntimeException e) {
                return false;
            }
        });
        return sentinel;
    }
}
