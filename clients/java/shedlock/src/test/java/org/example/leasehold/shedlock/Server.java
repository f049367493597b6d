package org.example.leasehold.shedlock;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisConnectionException;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Leasehold;

/** A real server, and locks on it. LEASEHOLD_MODULE names the module to load, LEASEHOLD_SERVER the server to run. */
final class Server implements AutoCloseable {
    private final Process process;
    private final RedisClient client;
    final RedisCommands<String, String> commands;
    final Leasehold locks;

    static Server withModule() throws Exception {
        String module = System.getenv("LEASEHOLD_MODULE");
        return new Server("--loadmodule", module != null ? module : Path.of("../../../target/release/libleasehold.so").toAbsolutePath().toString());
    }

    static Server plain() throws Exception {
        return new Server();
    }

    private Server(String... more) throws Exception {
        int port;
        try (ServerSocket socket = new ServerSocket(0)) {
            port = socket.getLocalPort();
        }
        String program = System.getenv().getOrDefault("LEASEHOLD_SERVER", "redis-server");
        String dir = Files.createTempDirectory("leasehold-shedlock-").toString();
        List<String> words = new ArrayList<>(List.of(program, "--port", "" + port, "--dir", dir, "--save", "", "--logfile", dir + "/log"));
        words.addAll(List.of(more));
        process = new ProcessBuilder(words).start();
        client = RedisClient.create(RedisURI.create("127.0.0.1", port));
        commands = connected();
        locks = Leasehold.over(client);
    }

    private RedisCommands<String, String> connected() throws Exception {
        for (long end = System.nanoTime() + 10_000_000_000L; ; Thread.sleep(5)) {
            try {
                return client.connect().sync();
            } catch (RedisConnectionException e) {
                if (System.nanoTime() > end || !process.isAlive()) {
                    throw e;
                }
            }
        }
    }

    @Override
    public void close() {
        locks.close();
        client.shutdown(0, 1, TimeUnit.SECONDS);
        process.destroyForcibly().onExit().join();
    }
}
