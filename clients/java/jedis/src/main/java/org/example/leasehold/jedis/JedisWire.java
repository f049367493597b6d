package org.example.leasehold.jedis;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.example.leasehold.Connector;
import org.example.leasehold.ServerException;
import org.jspecify.annotations.Nullable;
import redis.clients.jedis.BinaryJedisPubSub;
import redis.clients.jedis.CommandArguments;
import redis.clients.jedis.Connection;
import redis.clients.jedis.exceptions.JedisDataException;
import redis.clients.jedis.util.KeyValue;

/**
 * A connection of Jedis on which many ask at a time. Jedis blocks, so one thread writes what is asked and one reads what is
 * answered, in the order of the questions: whoever asks waits for neither.
 */
final class JedisWire implements Connector.Wire {
    /** Longer than any server needs that is there. */
    private static final long ANSWERS_WITHIN = 5;

    private static final Sent ASKING = new Sent(List.of("ASKING".getBytes(StandardCharsets.US_ASCII)), false, (reply, error) -> {});
    private static final Sent END = new Sent(List.of(), false, (reply, error) -> {});

    private record Sent(List<byte[]> words, boolean isAsking, BiConsumer<@Nullable Object, @Nullable Throwable> answer) {}

    private final Connection connection;
    private final BlockingQueue<Sent> unsent = new LinkedBlockingQueue<>();
    private final Queue<Sent> unanswered = new ConcurrentLinkedQueue<>();
    private final CompletableFuture<Throwable> cut = new CompletableFuture<>();

    private final boolean isListening;

    private JedisWire(Connection connection, boolean isListening) {
        this.connection = connection;
        this.isListening = isListening;
    }

    static JedisWire asking(Connection connection) {
        JedisWire wire = new JedisWire(connection, false);
        wire.start(wire::write);
        wire.start(wire::read);
        return wire;
    }

    static JedisWire listening(Connection connection, byte[] channel, Consumer<byte[]> heard) {
        JedisWire wire = new JedisWire(connection, true);
        CompletableFuture<Boolean> subscribed = new CompletableFuture<>();
        BinaryJedisPubSub subscription = new BinaryJedisPubSub() {
            @Override
            public void onSubscribe(byte[] on, int count) {
                subscribed.complete(true);
            }

            @Override
            public void onMessage(byte[] on, byte[] message) {
                heard.accept(message);
            }
        };
        wire.start(() -> subscription.proceed(connection, channel));
        wire.cut.thenAccept(subscribed::completeExceptionally);
        try {
            subscribed.get(ANSWERS_WITHIN, TimeUnit.SECONDS);
        } catch (Exception e) {
            wire.close();
            Throwable told = e.getCause() == null ? e : e.getCause();
            throw told instanceof RuntimeException known ? known : new IllegalStateException(told);
        }
        return wire;
    }

    private interface Work {
        void run() throws Exception;
    }

    /**
     * Does it until it fails: then the connection is cut. It is no virtual thread: leases are renewed by it, also while the
     * program keeps those who carry virtual threads busy.
     */
    private void start(Work work) {
        Thread thread = new Thread(() -> {
            Throwable reason = new IllegalStateException("closed");
            try {
                work.run();
            } catch (Throwable e) {
                reason = told(e);
            }
            cut(reason);
        }, "leasehold-jedis");
        thread.setDaemon(true);
        thread.start();
    }

    @Override
    public void send(List<byte[]> words, boolean isAsking, BiConsumer<@Nullable Object, @Nullable Throwable> answer) {
        unsent.add(new Sent(words, isAsking, answer));
        if (cut.isDone()) {
            fail(cut.join());
        }
    }

    /** What is asked meanwhile goes out together. */
    private void write() throws InterruptedException {
        while (true) {
            Sent next = unsent.take();
            for (; next != null && next != END; next = unsent.poll()) {
                if (next.isAsking) {
                    write(ASKING);
                }
                write(next);
            }
            // Jedis flushes before it reads answers: none, too.
            connection.getMany(0);
            if (next == END) {
                return;
            }
        }
    }

    private void write(Sent next) {
        unanswered.add(next);
        byte[] name = next.words.get(0);
        CommandArguments command = new CommandArguments(() -> name);
        next.words.subList(1, next.words.size()).forEach(command::add);
        connection.sendCommand(command);
    }

    private void read() {
        while (true) {
            Object reply = null;
            Throwable error = null;
            try {
                reply = plain(connection.getUnflushedObject());
            } catch (JedisDataException e) {
                error = told(e);
            }
            unanswered.remove().answer.accept(reply, error);
        }
    }

    /** A map is its names and values in turn. */
    private static @Nullable Object plain(@Nullable Object reply) {
        if (!(reply instanceof List<?> list)) {
            return reply;
        }
        List<@Nullable Object> all = new ArrayList<>(list.size());
        for (Object each : list) {
            if (each instanceof KeyValue<?, ?> field) {
                all.add(plain(field.getKey()));
                all.add(plain(field.getValue()));
            } else {
                all.add(plain(each));
            }
        }
        return all;
    }

    static Throwable told(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof JedisDataException) {
                return new ServerException(String.valueOf(each.getMessage()));
            }
        }
        return error;
    }

    @Override
    public void whenCut(Runnable told) {
        cut.thenRun(told);
    }

    private void cut(Throwable reason) {
        try {
            connection.close();
        } catch (RuntimeException e) {
            // It was broken.
        }
        cut.complete(reason);
        fail(cut.join());
    }

    private void fail(Throwable reason) {
        for (Queue<Sent> each : List.of(unanswered, unsent)) {
            for (Sent next = each.poll(); next != null; next = each.poll()) {
                next.answer.accept(null, reason);
            }
        }
        unsent.add(END);
    }

    @Override
    public void close() {
        if (isListening) {
            cut(new IllegalStateException("closed"));
        } else {
            unsent.add(END);
        }
    }
}
