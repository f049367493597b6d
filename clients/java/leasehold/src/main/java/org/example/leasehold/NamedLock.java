package org.example.leasehold;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A lock by its name, which many may hold at a time or one; or several, which are held all or none. */
public final class NamedLock {
    private final Core core;
    private final String name;
    private final List<byte[]> keys;
    private final int share;

    NamedLock(Core core, String name, List<byte[]> keys, int share) {
        if (share != Claim.EXCLUSIVE || keys.size() > 1) {
            core.link();
        }
        this.core = core;
        this.name = name;
        this.keys = keys;
        this.share = share;
    }

    /**
     * Work that is done under a lock.
     *
     * @param <T> what it results in
     * @param <E> what it throws
     */
    @FunctionalInterface
    public interface Work<T extends @Nullable Object, E extends Exception> {
        /**
         * Does the work.
         *
         * @param lease the lock, as long as it is held
         * @return the result
         * @throws E if it fails
         */
        T under(Lease lease) throws E;
    }

    private Attempt begin(Options options, boolean waits) {
        if (!waits && options.patience >= 0) {
            throw new IllegalArgumentException("patience: tryAcquire does not wait, acquire does");
        }
        if (options.owner != null || options.grace >= 0 || options.replicas != null) {
            core.link();
        }
        byte[] owner = options.owner != null ? options.owner : Core.newOwner();
        Attempt attempt = new Attempt(core, name, new Claim(keys, owner, share, options.grace), options, waits);
        core.turn.take(attempt::start);
        return attempt;
    }

    private static LeaseholdException.Busy busy(Attempt attempt) {
        return new LeaseholdException.Busy(attempt.name, attempt.waited());
    }

    /**
     * Waits for the lock, in the order of coming, until it is held or the patience ends: {@link LeaseholdException.Busy}.
     *
     * @return the lease
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public Lease acquire() throws InterruptedException {
        return acquire(Options.none());
    }

    /**
     * Waits for the lock: see {@link #acquire()}.
     *
     * @param options what is to be otherwise than the settings say
     * @return the lease
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public Lease acquire(Options options) throws InterruptedException {
        Attempt attempt = begin(options, true);
        Lease lease = await(attempt);
        if (lease == null) {
            throw busy(attempt);
        }
        return lease;
    }

    /**
     * Asks for the lock, and does not wait.
     *
     * @return the lease, or null if others have the lock
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public @Nullable Lease tryAcquire() throws InterruptedException {
        return tryAcquire(Options.none());
    }

    /**
     * Asks for the lock, and does not wait.
     *
     * @param options what is to be otherwise than the settings say
     * @return the lease, or null if others have the lock
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public @Nullable Lease tryAcquire(Options options) throws InterruptedException {
        return await(begin(options, false));
    }

    /**
     * Waits for the lock, as {@link #acquire(Options)} does. An interruption of the thread is put off until then, and costs no
     * place in the queue.
     *
     * @param options what is to be otherwise than the settings say
     * @return the lease
     */
    public Lease acquireUninterruptibly(Options options) {
        Attempt attempt = begin(options, true);
        Futures.settle(attempt.result);
        Lease lease;
        try {
            lease = await(attempt);
        } catch (InterruptedException e) {
            throw new AssertionError("what is done is not waited for", e);
        }
        if (lease == null) {
            throw busy(attempt);
        }
        return lease;
    }

    private static @Nullable Lease await(Attempt attempt) throws InterruptedException {
        try {
            return Lease.of(Futures.<@Nullable Hold>await(attempt.result));
        } catch (InterruptedException e) {
            abandon(attempt);
            throw e;
        }
    }

    /** Nobody wants the lock any more: if it was granted already, it is released. */
    private static void abandon(Attempt attempt) {
        attempt.core.turn.take(() -> attempt.stop(new LeaseholdException.Closed()));
        attempt.result.whenComplete((hold, error) -> {
            if (hold != null) {
                attempt.core.turn.take(hold::release);
            }
        });
    }

    /**
     * Waits for the lock without blocking: see {@link #acquire()}. If the future is cancelled, or completed otherwise, nothing
     * stays behind on the server.
     *
     * @return the lease
     */
    public CompletableFuture<Lease> acquireAsync() {
        return acquireAsync(Options.none());
    }

    /**
     * Waits for the lock without blocking: see {@link #acquireAsync()}.
     *
     * @param options what is to be otherwise than the settings say
     * @return the lease
     */
    public CompletableFuture<Lease> acquireAsync(Options options) {
        Attempt attempt = begin(options, true);
        CompletableFuture<Lease> outside = new CompletableFuture<>();
        attempt.result.whenComplete((hold, error) -> Futures.run(core.settings.executor, () -> {
            if (hold != null) {
                hand(outside, hold);
            } else {
                outside.completeExceptionally(error != null ? error : busy(attempt));
            }
        }));
        return abandoned(outside, attempt);
    }

    /**
     * Asks for the lock without blocking, and does not wait for it: see {@link #tryAcquire()}.
     *
     * @return the lease, or null if others have the lock
     */
    public CompletableFuture<@Nullable Lease> tryAcquireAsync() {
        return tryAcquireAsync(Options.none());
    }

    /**
     * Asks for the lock without blocking, and does not wait for it: see {@link #tryAcquire()}.
     *
     * @param options what is to be otherwise than the settings say
     * @return the lease, or null if others have the lock
     */
    public CompletableFuture<@Nullable Lease> tryAcquireAsync(Options options) {
        Attempt attempt = begin(options, false);
        CompletableFuture<@Nullable Lease> outside = new CompletableFuture<>();
        attempt.result.whenComplete((hold, error) -> Futures.run(core.settings.executor, () -> {
            if (hold != null) {
                hand(outside, hold);
            } else {
                Futures.<@Nullable Lease>complete(outside, null, error);
            }
        }));
        return abandoned(outside, attempt);
    }

    private static void hand(CompletableFuture<? super Lease> outside, Hold hold) {
        if (!outside.complete(new Lease(hold))) {
            hold.attempt.core.turn.take(hold::release);
        }
    }

    private static <T extends @Nullable Lease> CompletableFuture<T> abandoned(CompletableFuture<T> outside, Attempt attempt) {
        outside.whenComplete((lease, error) -> {
            if (!attempt.result.isDone()) {
                attempt.core.turn.take(() -> attempt.stop(new LeaseholdException.Closed()));
            }
        });
        return outside;
    }

    /**
     * Waits for the lock, does the work on this thread, and releases the lock however the work ends. What the work returns or
     * throws is what this returns or throws: a release that fails is logged. The thread is interrupted when the lock is lost. If
     * the work ends with an {@link InterruptedException} for that, this throws {@link LeaseholdException.Lost}.
     *
     * @param options what is to be otherwise than the settings say
     * @param work the work
     * @param <T> what it results in
     * @param <E> what it throws
     * @return the result of the work
     * @throws E what the work throws
     * @throws InterruptedException if the thread is interrupted while it waits for the lock
     */
    public <T extends @Nullable Object, E extends Exception> T call(Options options, Work<T, E> work) throws E, InterruptedException {
        try (Lease lease = acquire(options)) {
            return lease.during(work);
        }
    }
}
