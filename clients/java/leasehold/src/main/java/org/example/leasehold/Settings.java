package org.example.leasehold;

import java.time.Duration;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** What a {@link Leasehold} does unless a request says otherwise. Each method returns a copy that differs in one thing. */
public final class Settings implements Cloneable {
    static final Duration LONGEST = Duration.ofDays(36_500);
    /** Nothing is left of a shorter lease when the drift is taken off. */
    static final Duration LEAST_TTL = Duration.ofMillis(3);

    /** As many holders as a server takes. */
    private static final int MOST = 99_999;

    private static final Settings DEFAULTS = new Settings();

    String prefix = "";
    long ttl = Duration.ofSeconds(30).toNanos();
    long patience = LONGEST.toNanos();
    long response = Duration.ofSeconds(1).toNanos();
    long within = Duration.ofSeconds(3).toNanos();
    long unreachableAfter = Duration.ofSeconds(30).toNanos();
    long slice = Duration.ofSeconds(5).toNanos();
    boolean queue = true;
    int waitConnections = 16;
    boolean confirm;
    @Nullable Consumer<LockEvent> onEvent;
    Executor executor = ForkJoinPool.commonPool();

    private Settings() {}

    /**
     * Returns the settings that hold unless others are given.
     *
     * @return the defaults
     */
    public static Settings defaults() {
        return DEFAULTS;
    }

    private Settings with(Consumer<Settings> change) {
        try {
            Settings copy = (Settings) clone();
            change.accept(copy);
            return copy;
        } catch (CloneNotSupportedException e) {
            throw new AssertionError(e);
        }
    }

    static long checked(String name, Duration duration, Duration least) {
        if (duration.compareTo(least) < 0 || duration.compareTo(LONGEST) > 0) {
            throw new IllegalArgumentException(name + " must be at least " + least.toMillis() + " ms and at most a hundred years");
        }
        return duration.toNanos();
    }

    static int checked(String name, int count) {
        if (count < 1 || count > MOST) {
            throw new IllegalArgumentException(name + " must be at least 1 and at most " + MOST);
        }
        return count;
    }

    /** Servers take whole milliseconds. */
    static long checkedTtl(Duration ttl) {
        long nanos = checked("ttl", ttl, LEAST_TTL);
        return (nanos + 999_999) / 1_000_000 * 1_000_000;
    }

    /**
     * Sets what the name of every lock begins with on the server.
     *
     * @param prefix the prefix
     * @return the settings with it
     */
    public Settings prefix(String prefix) {
        return with(copy -> copy.prefix = prefix);
    }

    /**
     * Sets how long a lease lasts unless it is renewed: 30 s.
     *
     * @param ttl at least 3 ms
     * @return the settings with it
     */
    public Settings ttl(Duration ttl) {
        return with(copy -> copy.ttl = checkedTtl(ttl));
    }

    /**
     * Sets how long {@code acquire} waits: without limit unless it is set.
     *
     * @param patience a hard limit
     * @return the settings with it
     */
    public Settings patience(Duration patience) {
        return with(copy -> copy.patience = checked("patience", patience, Duration.ZERO));
    }

    /**
     * Sets how long to wait for each answer of a server: 1 s. For a short ttl it is less: a fifth of that.
     *
     * @param response at least 1 ms
     * @return the settings with it
     */
    public Settings response(Duration response) {
        return with(copy -> copy.response = checked("response", response, Duration.ofMillis(1)));
    }

    /**
     * Sets how long a request that does not wait goes on trying when servers fail, and a release: 3 s.
     *
     * @param within the limit
     * @return the settings with it
     */
    public Settings within(Duration within) {
        return with(copy -> copy.within = checked("within", within, Duration.ZERO));
    }

    /**
     * Sets how long a request that waits goes on while no server answers: 30 s.
     *
     * @param limit the limit
     * @return the settings with it
     */
    public Settings unreachableAfter(Duration limit) {
        return with(copy -> copy.unreachableAfter = checked("unreachableAfter", limit, Duration.ZERO));
    }

    /**
     * Sets how often a place in the queue is asked for again: 5 s. It is kept for three times as long.
     *
     * @param slice at least 1 ms
     * @return the settings with it
     */
    public Settings slice(Duration slice) {
        return with(copy -> copy.slice = checked("slice", slice, Duration.ofMillis(1)));
    }

    /**
     * Has the server confirm a grant that a message tells before the work begins. Unless it is set, whoever may publish on the
     * channels {@code leasehold:*} and knows an owner can have a program believe that it holds a lock.
     *
     * @param confirm whether to confirm
     * @return the settings with it
     */
    public Settings confirm(boolean confirm) {
        return with(copy -> copy.confirm = confirm);
    }

    /**
     * Sets whether a wait takes a place in the server's queue, as it does by default. Otherwise it tries again and again, and
     * shares the lock with clients that do the same.
     *
     * @param queue whether to queue
     * @return the settings with it
     */
    public Settings queue(boolean queue) {
        return with(copy -> copy.queue = queue);
    }

    /**
     * Sets how many connections may wait where the server tells this user of no grants: 16. The other waits ask again and again.
     *
     * @param count at least 1
     * @return the settings with it
     */
    public Settings waitConnections(int count) {
        return with(copy -> copy.waitConnections = checked("waitConnections", count));
    }

    /**
     * Sets who is told of each step that a lock takes, for traces and measures. It is called in order, on a thread that has
     * nothing else to do: the locks do not wait for it.
     *
     * @param told is told of each step
     * @return the settings with it
     */
    public Settings onEvent(Consumer<LockEvent> told) {
        return with(copy -> copy.onEvent = told);
    }

    /**
     * Sets where futures are completed and losses told: the common pool unless it is set. What runs there may block; the
     * threads of this package and of Lettuce run nothing of the program's.
     *
     * @param executor the executor
     * @return the settings with it
     */
    public Settings executor(Executor executor) {
        return with(copy -> copy.executor = executor);
    }
}
