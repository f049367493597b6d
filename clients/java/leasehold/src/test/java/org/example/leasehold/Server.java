package org.example.leasehold;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** A real server. LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run. */
final class Server implements AutoCloseable {
    private final List<String> words;
    private Process process;
    final RedisURI uri;
    final RedisClient client;
    private RedisCommands<String, String> commands;

    private static String module() {
        String module = System.getenv("LEASEHOLD_MODULE");
        return module != null ? module : Path.of("../../../target/release/libleasehold.so").toAbsolutePath().toString();
    }

    static Server withModule() {
        return new Server("--loadmodule", module());
    }

    /** A cluster of one, which has no slots yet. */
    static Server node() {
        return new Server("--loadmodule", module(), "--cluster-enabled", "yes");
    }

    static Server plain() {
        return new Server();
    }

    private Server(String... more) {
        try (ServerSocket socket = new ServerSocket(0)) {
            int port = socket.getLocalPort();
            uri = RedisURI.create("127.0.0.1", port);
            String program = System.getenv().getOrDefault("LEASEHOLD_SERVER", "redis-server");
            String dir = Files.createTempDirectory("leasehold-java-").toString();
            words = new ArrayList<>(List.of(program, "--port", "" + port, "--dir", dir, "--save", "", "--logfile", dir + "/log"));
            words.addAll(List.of(more));
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
        client = RedisClient.create(uri);
        start();
    }

    void start() {
        try {
            process = new ProcessBuilder(words).start();
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
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

    RedisCommands<String, String> ask() {
        return commands;
    }

    void signal(String name) {
        try {
            new ProcessBuilder("kill", "-" + name, "" + process.pid()).start().waitFor();
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    void kill() {
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
}
