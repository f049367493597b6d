package org.example.leasehold;

import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * A lock that is held. It renews itself until it is released or lost. It may be used by many threads at a time. One that the
 * program has dropped, and that nobody is to be told of the loss of, is released when the garbage collector finds it, and that is
 * logged.
 */
public final class Lease implements AutoCloseable {
    private static final Cleaner DROPPED = Cleaner.create();

    private final Hold hold;
    /** How it is shared after a downgrade. */
    private final int shared;

    Lease(Hold hold) {
        this.hold = hold;
        int share = hold.attempt.claim.share();
        this.shared = share == Claim.EXCLUSIVE ? Claim.ANY_NUMBER : share;
        DROPPED.register(this, hold::forgotten);
    }

    static @Nullable Lease of(@Nullable Hold hold) {
        return hold == null ? null : new Lease(hold);
    }

    private Turn turn() {
        return hold.attempt.core.turn;
    }

    private <T extends @Nullable Object> CompletableFuture<T> outside(CompletableFuture<T> inside) {
        return Futures.outside(inside, hold.attempt.core.settings.executor);
    }

    /**
     * Returns the name that the lock was acquired by; several are listed.
     *
     * @return the name
     */
    public String name() {
        return hold.attempt.name;
    }

    /**
     * Returns who holds the lock, as the server knows it.
     *
     * @return the owner
     */
    public String owner() {
        return new String(hold.attempt.claim.owner(), StandardCharsets.UTF_8);
    }

    /**
     * Returns a number larger than that of every earlier grant of this lock, below 2^53. A store refuses what is smaller.
     *
     * @return the fence
     */
    public long fence() {
        return hold.fence;
    }

    /**
     * Returns for how long the lock is certainly held: it looks at the clock, and asks no server.
     *
     * @return zero if it is lost, or released
     */
    public Duration validFor() {
        return Duration.ofNanos(turn().get(hold::validFor));
    }

    /**
     * Returns whether the lock is held: it looks at the clock, and asks no server.
     *
     * @return false if it is lost, or released
     */
    public boolean isHeld() {
        return loss() == null;
    }

    /**
     * Returns why the lock is not held any more.
     *
     * @return null while it is held
     */
    public @Nullable Loss loss() {
        return turn().<@Nullable Loss>get(hold::loss);
    }

    /**
     * Does something when the lock is held no more, for whatever {@linkplain Loss reason}: at the latest when its lease is over,
     * also when the server is silent. It is done on the {@linkplain Settings#executor executor}.
     *
     * @param told is told why
     */
    public void onLost(Consumer<LeaseholdException.Lost> told) {
        hold.lost.thenAccept(lost -> Futures.run(hold.attempt.core.settings.executor, () -> told.accept(lost)));
    }

    /**
     * Returns what is completed when the lock is held no more: see {@link #onLost}.
     *
     * @return why it is not held
     */
    public CompletableFuture<LeaseholdException.Lost> lost() {
        CompletableFuture<LeaseholdException.Lost> outside = new CompletableFuture<>();
        onLost(outside::complete);
        return outside;
    }

    /** Does work on this thread, and interrupts it when the lock is lost meanwhile. */
    <T extends @Nullable Object, E extends Exception> T during(NamedLock.Work<T, E> work) throws E {
        Worker worker = new Worker();
        hold.lost.thenAccept(worker::stop);
        try {
            return work.under(this);
        } catch (Exception e) {
            Loss loss = worker.end();
            if (loss != null && e instanceof InterruptedException) {
                LeaseholdException.Lost lost = new LeaseholdException.Lost(name(), loss, null);
                lost.addSuppressed(e);
                throw lost;
            }
            throw e;
        } finally {
            worker.end();
        }
    }

    /** A thread, as long as it works under a lock. */
    private static final class Worker {
        private final Thread thread = Thread.currentThread();
        private boolean isOver;
        private @Nullable Loss loss;

        synchronized void stop(LeaseholdException.Lost lost) {
            if (!isOver && lost.loss() != Loss.RELEASED) {
                loss = lost.loss();
                thread.interrupt();
            }
        }

        /** Whether it was interrupted for a loss: that is told once, and does not reach what the thread does next. */
        synchronized @Nullable Loss end() {
            if (!isOver && loss != null) {
                Thread.interrupted();
            }
            isOver = true;
            return loss;
        }
    }

    /**
     * Has the lease end so long from now, and renews it by as much from now on. {@link LeaseholdException.Lost} says that the
     * lock is lost. After another error the lease is as it was, or extended: it counts for the shorter of the two.
     *
     * @param ttl at least 3 ms
     * @throws InterruptedException if the thread is interrupted; the lease may be extended
     */
    public void extend(Duration ttl) throws InterruptedException {
        Futures.await(extension(ttl));
    }

    /**
     * Extends the lease without blocking: see {@link #extend}.
     *
     * @param ttl at least 3 ms
     * @return is completed when it is extended
     */
    public CompletableFuture<Void> extendAsync(Duration ttl) {
        return outside(extension(ttl));
    }

    private CompletableFuture<Void> extension(Duration ttl) {
        long by = Settings.checkedTtl(ttl);
        return turn().get(() -> hold.extend(by));
    }

    /**
     * Adds so much to what is left of the lease, and renews it by the sum from now on: see {@link #extend}.
     *
     * @param by how much
     * @throws InterruptedException if the thread is interrupted; the lease may be extended
     */
    public void extendBy(Duration by) throws InterruptedException {
        Futures.await(addition(by));
    }

    /**
     * Adds to the lease without blocking: see {@link #extendBy}.
     *
     * @param by how much
     * @return is completed when it is extended
     */
    public CompletableFuture<Void> extendByAsync(Duration by) {
        return outside(addition(by));
    }

    private CompletableFuture<Void> addition(Duration by) {
        long nanos = Settings.checked("by", by, Duration.ZERO);
        return turn().get(() -> hold.extendBy(nanos));
    }

    /**
     * Has a lock that was shared alone from now on, by a new fence. Nobody waits for that: two who did would wait for each other.
     *
     * @return false, and nothing has changed, if others hold it, too
     * @throws InterruptedException if the thread is interrupted; it may be held alone
     */
    public boolean upgrade() throws InterruptedException {
        return Futures.await(turn().get(() -> hold.share(Claim.EXCLUSIVE)));
    }

    /**
     * Has the lock alone, without blocking: see {@link #upgrade}.
     *
     * @return false, and nothing has changed, if others hold it, too
     */
    public CompletableFuture<Boolean> upgradeAsync() {
        return outside(turn().get(() -> hold.share(Claim.EXCLUSIVE)));
    }

    /**
     * Lets those in who share the lock: as before an upgrade, or else other readers. The fence stays.
     *
     * @throws InterruptedException if the thread is interrupted; it may be shared
     */
    public void downgrade() throws InterruptedException {
        Futures.await(sharing());
    }

    /**
     * Shares the lock without blocking: see {@link #downgrade}.
     *
     * @return is completed when it is shared
     */
    public CompletableFuture<Void> downgradeAsync() {
        return outside(sharing());
    }

    private CompletableFuture<Void> sharing() {
        hold.attempt.core.link();
        return turn().get(() -> hold.share(shared)).thenAccept(is -> {});
    }

    /**
     * Has the server run a command of its own, such as {@code "SET", key, value}, if this lease holds the lock at that moment;
     * if not, this is {@link LeaseholdException.Lost}, and nothing was run. It is sent once: after
     * {@link LeaseholdException.Unanswered} it may have been run. Of several locks the server checks the first alone. It needs
     * the module.
     *
     * @param command its words: strings, bytes or numbers
     * @return a number, text, null, or a list of these
     * @throws InterruptedException if the thread is interrupted; the command may be run
     */
    public @Nullable Object guard(Object... command) throws InterruptedException {
        return Guarded.asText(Futures.<@Nullable Object>await(guarded(command)));
    }

    /**
     * Has the server run a command without blocking: see {@link #guard}.
     *
     * @param command its words: strings, bytes or numbers
     * @return a number, text, null, or a list of these
     */
    public CompletableFuture<@Nullable Object> guardAsync(Object... command) {
        return this.<@Nullable Object>outside(guarded(command).<@Nullable Object>thenApply(Guarded::asText));
    }

    /**
     * Has the server run a command without blocking: see {@link #guard}. Texts are bytes.
     *
     * @param command its words: strings, bytes or numbers
     * @return a number, bytes, null, or a list of these
     */
    public CompletableFuture<@Nullable Object> guardBytesAsync(Object... command) {
        return this.<@Nullable Object>outside(guarded(command));
    }

    private CompletableFuture<@Nullable Object> guarded(Object... command) {
        Guarded guarded = new Guarded(hold, command);
        turn().take(guarded::start);
        return guarded.result;
    }

    /**
     * Stops the renewal, and leaves the lock held until its lease ends: for work that is to be done once in a while by one of
     * many. Whoever is given what this returns can {@linkplain Leasehold#adopt adopt} the lock, to renew and to release it. An
     * ephemeral one still ends with the connection of this program.
     *
     * @return the lock, for somebody else
     */
    public Detached detach() {
        return turn().get(() -> {
            hold.leave();
            return new Detached(hold.attempt.claim.keys(), hold.attempt.claim.owner(), hold.fence);
        });
    }

    /**
     * Gives the lock back. It takes no longer than {@link Settings#within} says.
     *
     * @return what came of it
     * @throws InterruptedException if the thread is interrupted; the lock is given back all the same
     */
    public Outcome release() throws InterruptedException {
        return Futures.await(turn().get(hold::release));
    }

    /**
     * Gives the lock back without blocking: see {@link #release}.
     *
     * @return what came of it
     */
    public CompletableFuture<Outcome> releaseAsync() {
        return outside(turn().get(hold::release));
    }

    /**
     * Gives the lock back, and takes no longer than {@link Settings#within} says. It throws nothing: a release that fails is
     * logged, and the lock stays until its lease ends.
     */
    @Override
    public void close() {
        Futures.settle(turn().get(hold::release));
    }
}
