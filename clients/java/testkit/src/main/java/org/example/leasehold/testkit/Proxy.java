package org.example.leasehold.testkit;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** An address that leads to one server, and to another when that has failed. */
public final class Proxy implements AutoCloseable {
    private final ServerSocket socket;
    /** From the client, and on to the server. */
    private final Map<Socket, Socket> connections = new ConcurrentHashMap<>();
    private final Set<Socket> silent = ConcurrentHashMap.newKeySet();
    private volatile int target;

    public Proxy(int target) {
        this.target = target;
        try {
            socket = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        run(() -> {
            while (true) {
                Socket client = socket.accept();
                Socket server = new Socket(InetAddress.getLoopbackAddress(), this.target);
                connections.put(client, server);
                run(() -> pump(client, server));
                run(() -> pump(server, client));
            }
        });
    }

    public int port() {
        return socket.getLocalPort();
    }

    /** Whoever is connected stays connected. */
    public void leadsTo(int target) {
        this.target = target;
    }

    /** Whoever is connected stays connected, and hears nothing any more: as behind a router that has forgotten a connection. */
    public void forgetsAll() {
        silent.addAll(connections.keySet());
        forgetsAnswers();
    }

    /** What those who are connected ask still comes to the server. */
    public void forgetsAnswers() {
        silent.addAll(connections.values());
    }

    private interface Work {
        void run() throws IOException;
    }

    private static void run(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (IOException e) {
                // One of the two has hung up.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    private void pump(Socket from, Socket to) throws IOException {
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            byte[] buffer = new byte[4096];
            for (int count = in.read(buffer); count >= 0; count = in.read(buffer)) {
                if (!silent.contains(from)) {
                    out.write(buffer, 0, count);
                }
            }
        }
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
