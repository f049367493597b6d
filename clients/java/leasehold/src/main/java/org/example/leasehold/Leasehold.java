package org.example.leasehold;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import org.jspecify.annotations.Nullable;

/**
 * Locks on a server of Redis or Valkey.
 *
 * <pre>{@code
 * try (Leasehold locks = Leasehold.over(RedisClient.create("redis://127.0.0.1"));
 *         Lease lease = locks.acquire("printer")) {
 *     lease.onLost(lost -> printer.stop());
 *     printer.print(page, lease.fence());
 * }
 * }</pre>
 *
 * <p>Each call blocks, or has a twin whose name ends in {@code Async}. A thread that blocks may be a virtual one: it parks, and
 * holds nothing meanwhile. A program has one for all its threads, and closes it last.
 */
public final class Leasehold implements AutoCloseable {
    private static final Duration CLOSES_WITHIN = Duration.ofSeconds(5);
    /** As many holders as a server takes. */
    private static final int MOST = 99_999;
    /** A server takes 128 beside the first one. */
    private static final int MOST_NAMES = 129;

    private final Core core;

    private Leasehold(Link.Connector connector, Settings settings) {
        core = new Core(connector, settings);
    }

    /**
     * Returns locks on the server of a client, or on the primary that its Sentinels name.
     *
     * @param client stays open when this is closed; has an address of its own
     * @return the locks
     */
    public static Leasehold over(RedisClient client) {
        return over(client, Settings.defaults());
    }

    /**
     * Returns locks on the server of a client, or on the primary that its Sentinels name.
     *
     * @param client stays open when this is closed; has an address of its own
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClient client, Settings settings) {
        return new Leasehold(new Link.Connector() {
            @Override
            public StatefulRedisConnection<byte[], byte[]> connect() {
                return client.connect(ByteArrayCodec.INSTANCE);
            }

            @Override
            public StatefulRedisPubSubConnection<byte[], byte[]> listen() {
                return client.connectPubSub(ByteArrayCodec.INSTANCE);
            }
        }, settings);
    }

    /**
     * Returns locks on a server, or on the primary that Sentinels name.
     *
     * @param client stays open when this is closed
     * @param uri where the server is, or the Sentinels
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClient client, RedisURI uri, Settings settings) {
        return new Leasehold(new Link.Connector() {
            @Override
            public StatefulRedisConnection<byte[], byte[]> connect() {
                return client.connect(ByteArrayCodec.INSTANCE, uri);
            }

            @Override
            public StatefulRedisPubSubConnection<byte[], byte[]> listen() {
                return client.connectPubSub(ByteArrayCodec.INSTANCE, uri);
            }
        }, settings);
    }

    /**
     * Returns a lock to be held alone.
     *
     * @param name its name
     * @return the lock
     */
    public NamedLock write(String name) {
        return new NamedLock(core, List.of(name), Claim.EXCLUSIVE);
    }

    /**
     * Returns a lock to be held beside any number of other readers. It needs the module.
     *
     * @param name its name
     * @return the lock
     */
    public NamedLock read(String name) {
        return new NamedLock(core, List.of(name), Claim.ANY_NUMBER);
    }

    /**
     * Returns a lock to be held by so many at a time. It needs the module.
     *
     * @param name its name
     * @param permits how many
     * @return the lock
     */
    public NamedLock semaphore(String name, int permits) {
        if (permits < 1 || permits > MOST) {
            throw new IllegalArgumentException("permits must be at least 1 and at most " + MOST);
        }
        return new NamedLock(core, List.of(name), permits);
    }

    /**
     * Returns all of these locks or none, with one fence; in a cluster they are in one slot. Whoever waits holds none of them.
     *
     * @param names their names
     * @return the locks
     */
    public NamedLock several(String... names) {
        if (names.length == 0 || names.length > MOST_NAMES) {
            throw new IllegalArgumentException("there must be 1 to " + MOST_NAMES + " names");
        }
        if (new HashSet<>(List.of(names)).size() < names.length) {
            throw new IllegalArgumentException("each name must be given once");
        }
        return new NamedLock(core, List.of(names), Claim.EXCLUSIVE);
    }

    /**
     * Waits for a lock to be held alone: see {@link NamedLock#acquire()}.
     *
     * @param name its name
     * @return the lease
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public Lease acquire(String name) throws InterruptedException {
        return write(name).acquire();
    }

    /**
     * Waits for a lock to be held alone: see {@link NamedLock#acquire(Options)}.
     *
     * @param name its name
     * @param options what is to be otherwise than the settings say
     * @return the lease
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public Lease acquire(String name, Options options) throws InterruptedException {
        return write(name).acquire(options);
    }

    /**
     * Asks for a lock to be held alone, and does not wait.
     *
     * @param name its name
     * @return the lease, or null if others have the lock
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public @Nullable Lease tryAcquire(String name) throws InterruptedException {
        return write(name).tryAcquire();
    }

    /**
     * Waits for a lock without blocking: see {@link NamedLock#acquireAsync()}.
     *
     * @param name its name
     * @return the lease
     */
    public CompletableFuture<Lease> acquireAsync(String name) {
        return write(name).acquireAsync();
    }

    /**
     * Asks for a lock without blocking, and does not wait for it.
     *
     * @param name its name
     * @return the lease, or null if others have the lock
     */
    public CompletableFuture<@Nullable Lease> tryAcquireAsync(String name) {
        return write(name).tryAcquireAsync();
    }

    /**
     * Returns a lock as the JDK has them. A thread that holds it may lock it again, by the same object: that is counted in this
     * program. To lock it once more, or to unlock it, tells of a loss by {@link LeaseholdException.Lost}, or by a line in the
     * log. It has no conditions.
     *
     * @param name its name
     * @return the lock, to be kept
     */
    public Lock asLock(String name) {
        return new LeaseLock(write(name));
    }

    /**
     * Ends all waits, releases what is held, and closes the connections. The client stays open.
     *
     * @param limit how long that may take
     * @return the names of the locks that could not be released: they stay until their leases end
     */
    public CompletableFuture<List<String>> closeAsync(Duration limit) {
        long nanos = Settings.checked("limit", limit, Duration.ZERO);
        return Futures.outside(core.turn.get(() -> core.close(nanos)), core.settings.executor);
    }

    /** Closes this within 5 s: see {@link #closeAsync}. What could not be released is logged. */
    @Override
    public void close() {
        Futures.settle(core.turn.get(() -> core.close(CLOSES_WITHIN.toNanos())));
    }
}
