package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** A lock that is held. It renews itself until it is released or lost. It may be used by many threads at a time. */
public final class Lease implements AutoCloseable {
    private final Hold hold;

    Lease(Hold hold) {
        this.hold = hold;
    }

    private Turn turn() {
        return hold.attempt.core.turn;
    }

    private <T> CompletableFuture<T> outside(CompletableFuture<T> inside) {
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
        return outside(hold.lost);
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
