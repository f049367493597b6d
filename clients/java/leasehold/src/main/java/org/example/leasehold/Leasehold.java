package org.example.leasehold;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.function.Function;
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
    /** A server takes 128 beside the first one. */
    private static final int MOST_NAMES = 129;

    private final Core core;

    private Leasehold(Core core) {
        this.core = core;
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
     * Returns locks on the server of a client, or on the primary that its Sentinels name. They are asked whenever this connects,
     * and when the primary has become a replica.
     *
     * @param client stays open when this is closed; has an address of its own
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClient client, Settings settings) {
        return by(new Lettuce.Single(client, null), settings);
    }

    /**
     * Returns locks on a server, or on the primary that Sentinels name. While locks are in use these are asked each second, so a
     * former primary grants none for longer that has not noticed that there is another.
     *
     * @param client stays open when this is closed
     * @param uri where the server is, or the Sentinels
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClient client, RedisURI uri, Settings settings) {
        boolean isWatched = !uri.getSentinels().isEmpty();
        return by(isWatched ? new Lettuce.Watched(client, uri) : new Lettuce.Single(client, uri), settings);
    }

    /**
     * Returns locks in a cluster. Each is on the node that has its slot, and goes along when the slot moves.
     *
     * @param client stays open when this is closed; its options at this moment are those of all connections
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClusterClient client, Settings settings) {
        return by(new Lettuce.Cluster(client), settings);
    }

    /**
     * Returns locks on servers that another library than Lettuce connects to.
     *
     * @param connector connects to them, and is closed with this
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold by(Connector connector, Settings settings) {
        return new Leasehold(new Core(connector, settings));
    }

    /**
     * Returns locks on most of several independent servers, three or five: such a lock outlives the loss of a few of them. It
     * has one fence, larger than that of every earlier grant. Whoever waits asks again and again: there is no queue. Each client
     * is of another server, and none of these is a replica of another: {@code docs/redlock.md} of the project says what that
     * rests on. Locks are exclusive, and have no owners that are chosen; what needs one server is refused by an
     * {@link IllegalArgumentException}.
     *
     * @param clients stay open when this is closed; each has an address of its own
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold quorum(List<RedisClient> clients, Settings settings) {
        return quorumBy(clients.stream().map(client -> new Lettuce.Single(client, null)).toList(), settings);
    }

    /**
     * Returns locks on most of several servers that another library than Lettuce connects to: see {@link #quorum}.
     *
     * @param connectors one for each server, closed with this
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold quorumBy(List<? extends Connector> connectors, Settings settings) {
        if (connectors.isEmpty()) {
            throw new IllegalArgumentException("there must be at least one server");
        }
        return new Leasehold(new Core(connectors, settings));
    }

    private byte[] key(byte[] name) {
        byte[] prefix = Claim.bytes(core.settings.prefix);
        byte[] key = Arrays.copyOf(prefix, prefix.length + name.length);
        System.arraycopy(name, 0, key, prefix.length, name.length);
        return key;
    }

    private byte[] key(String name) {
        return key(Claim.bytes(name));
    }

    private NamedLock lock(String name, int share) {
        return new NamedLock(core, name, List.of(key(name)), share);
    }

    /**
     * Returns a lock to be held alone.
     *
     * @param name its name
     * @return the lock
     */
    public NamedLock write(String name) {
        return lock(name, Claim.EXCLUSIVE);
    }

    /**
     * Returns a lock to be held alone, whose name need not be text.
     *
     * @param name its name
     * @return the lock
     */
    public NamedLock write(byte[] name) {
        return new NamedLock(core, new String(name, StandardCharsets.UTF_8), List.of(key(name)), Claim.EXCLUSIVE);
    }

    /**
     * Returns a lock to be held beside any number of other readers. It needs the module.
     *
     * @param name its name
     * @return the lock
     */
    public NamedLock read(String name) {
        return lock(name, Claim.ANY_NUMBER);
    }

    /**
     * Returns a lock to be held by so many at a time. It needs the module.
     *
     * @param name its name
     * @param permits how many
     * @return the lock
     */
    public NamedLock semaphore(String name, int permits) {
        return lock(name, Settings.checked("permits", permits));
    }

    /**
     * Returns all of these locks or none, with one fence; in a cluster they are in one slot. Whoever waits holds none of them.
     *
     * @param names their names
     * @return the locks
     */
    public NamedLock several(String... names) {
        if (names.length == 0 || names.length > MOST_NAMES) {
            throw new IllegalArgumentException("names must be at least 1 and at most " + MOST_NAMES);
        }
        if (new HashSet<>(List.of(names)).size() < names.length) {
            throw new IllegalArgumentException("names must differ");
        }
        return new NamedLock(core, String.join(", ", names), Arrays.stream(names).map(this::key).toList(), Claim.EXCLUSIVE);
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
        return new LeaseLocks(write(name), write(name)).writeLock();
    }

    /**
     * Returns a lock for readers and a writer as the JDK has them. As {@link #asLock} it counts for each thread, by the same
     * object. A thread that writes may also read, and lets other readers in once it writes no more; one that reads and wants to
     * write is refused by an {@link IllegalMonitorStateException}. It needs the module.
     *
     * @param name its name
     * @return the locks, to be kept
     */
    public ReadWriteLock asReadWriteLock(String name) {
        return new LeaseLocks(read(name), write(name));
    }

    /**
     * Goes on with a lock that was left held: renews it by the ttl of the settings. {@link LeaseholdException.Lost}: it is not
     * held any more.
     *
     * @param detached what {@link Lease#detach} returned
     * @return the lease
     * @throws InterruptedException if the thread is interrupted; the lock stays until its lease ends
     */
    public Lease adopt(Detached detached) throws InterruptedException {
        CompletableFuture<@Nullable Hold> adopting = adopting(detached);
        try {
            return Objects.requireNonNull(Lease.of(Futures.<@Nullable Hold>await(adopting)));
        } catch (InterruptedException e) {
            adopting.thenAccept(hold -> core.turn.take(hold::leave));
            throw e;
        }
    }

    /**
     * Goes on with a lock without blocking: see {@link #adopt}.
     *
     * @param detached what {@link Lease#detach} returned
     * @return the lease
     */
    public CompletableFuture<Lease> adoptAsync(Detached detached) {
        CompletableFuture<Lease> outside = new CompletableFuture<>();
        adopting(detached).whenComplete((hold, error) -> Futures.run(core.settings.executor, () -> {
            if (hold == null) {
                outside.completeExceptionally(error);
            } else if (!outside.complete(new Lease(hold))) {
                core.turn.take(hold::leave);
            }
        }));
        return outside;
    }

    private CompletableFuture<@Nullable Hold> adopting(Detached detached) {
        String name = String.join(", ", detached.keys.stream().map(key -> new String(key, StandardCharsets.UTF_8)).toList());
        Claim claim = new Claim(detached.keys, detached.owner, Claim.EXCLUSIVE, -1);
        Attempt attempt = core.turn.get(() -> new Attempt(core, name, claim, Options.none(), false));
        core.turn.take(() -> attempt.adopt(detached.fence()));
        return attempt.result;
    }

    /**
     * Returns an election of this name, in which this program goes by the name of the candidate.
     *
     * @param name its name
     * @param candidate the candidate
     * @return the election
     */
    public Election election(String name, String candidate) {
        core.link();
        return new Election(core, write(name), key(name), candidate);
    }

    private Look look(String name) {
        return new Look(core, key(name));
    }

    /**
     * Tells who holds a lock at this moment, and how many wait for it.
     *
     * @param name its name
     * @return null if it is free
     */
    public CompletableFuture<@Nullable LockInfo> infoAsync(String name) {
        return Futures.<@Nullable LockInfo>outside(core.turn.get(() -> look(name).info()), core.settings.executor);
    }

    /**
     * Tells who holds a lock at this moment, and how many wait for it.
     *
     * @param name its name
     * @return null if it is free
     * @throws InterruptedException if the thread is interrupted
     */
    public @Nullable LockInfo info(String name) throws InterruptedException {
        return Futures.<@Nullable LockInfo>await(infoAsync(name));
    }

    private <T> CompletableFuture<List<T>> list(String name, Function<Look.Row, T> read, String command, Object... words) {
        return Futures.outside(core.turn.get(() -> look(name).list(read, command, words)), core.settings.executor);
    }

    /**
     * Tells who holds a lock, the oldest grant first. It needs the module, as all that follow.
     *
     * @param name its name
     * @return the holders
     */
    public CompletableFuture<List<HolderInfo>> holdersAsync(String name) {
        return list(name, Look.Row::holder, "LOCK.HOLDERS", key(name), "COUNT", -1);
    }

    /**
     * Tells who holds a lock: see {@link #holdersAsync}.
     *
     * @param name its name
     * @return the holders
     * @throws InterruptedException if the thread is interrupted
     */
    public List<HolderInfo> holders(String name) throws InterruptedException {
        return Futures.await(holdersAsync(name));
    }

    /**
     * Tells who waits for a lock, the next one first.
     *
     * @param name its name
     * @return the waiters
     */
    public CompletableFuture<List<WaiterInfo>> waitersAsync(String name) {
        return list(name, Look.Row::waiter, "LOCK.WAITERS", key(name), "COUNT", -1);
    }

    /**
     * Tells who waits for a lock: see {@link #waitersAsync}.
     *
     * @param name its name
     * @return the waiters
     * @throws InterruptedException if the thread is interrupted
     */
    public List<WaiterInfo> waiters(String name) throws InterruptedException {
        return Futures.await(waitersAsync(name));
    }

    /**
     * Tells of the locks that are most waited for on the server; in a cluster, on the node that has the lock {@code at}.
     *
     * @param count how many at the most
     * @param at the name of a lock
     * @return the locks
     */
    public CompletableFuture<List<Contention>> topAsync(int count, String at) {
        return list(at, Look.Row::contention, "LOCK.TOP", Settings.checked("count", count));
    }

    /**
     * Tells of the locks that are most waited for: see {@link #topAsync}.
     *
     * @param count how many at the most
     * @param at the name of a lock
     * @return the locks
     * @throws InterruptedException if the thread is interrupted
     */
    public List<Contention> top(int count, String at) throws InterruptedException {
        return Futures.await(topAsync(count, at));
    }

    /**
     * Tells what went wrong with locks on the server; in a cluster, on the node that has the lock {@code at}: the latest first.
     *
     * @param count how many at the most
     * @param at the name of a lock
     * @return the entries
     */
    public CompletableFuture<List<LogEntry>> logAsync(int count, String at) {
        return list(at, Look.Row::entry, "LOCK.LOG", Settings.checked("count", count));
    }

    /**
     * Tells what went wrong with locks: see {@link #logAsync}.
     *
     * @param count how many at the most
     * @param at the name of a lock
     * @return the entries
     * @throws InterruptedException if the thread is interrupted
     */
    public List<LogEntry> log(int count, String at) throws InterruptedException {
        return Futures.await(logAsync(count, at));
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
