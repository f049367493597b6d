package org.example.leasehold;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * All that changes the state of a {@link Core} is done in turn, by whatever thread has the news: a caller's, one of Lettuce's, or
 * the one thread that has all deadlines. What goes out of the package, such as a command or the completion of a future, is
 * done after the turn, when no lock is held.
 */
final class Turn {
    private final ReentrantLock lock = new ReentrantLock();
    private final ScheduledThreadPoolExecutor deadlines;
    /** One thread, while there is something to tell. */
    private final ThreadPoolExecutor tells;
    private List<Runnable> after = new ArrayList<>(4);

    Turn() {
        deadlines = new ScheduledThreadPoolExecutor(1, work -> thread(work, "leasehold-deadlines"));
        deadlines.setRemoveOnCancelPolicy(true);
        deadlines.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
        tells = new ThreadPoolExecutor(
                1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(), work -> thread(work, "leasehold-events"));
        tells.allowCoreThreadTimeOut(true);
    }

    private static Thread thread(Runnable work, String name) {
        Thread thread = new Thread(work, name);
        thread.setDaemon(true);
        return thread;
    }

    void take(Runnable step) {
        get(() -> {
            step.run();
            return true;
        });
    }

    <T extends @Nullable Object> T get(Supplier<T> step) {
        List<Runnable> due = List.of();
        lock.lock();
        try {
            return step.get();
        } finally {
            if (lock.getHoldCount() == 1 && !after.isEmpty()) {
                due = after;
                after = new ArrayList<>(4);
            }
            lock.unlock();
            due.forEach(Turn::run);
        }
    }

    /** What fails does not keep what comes after it from being done. */
    private static void run(Runnable effect) {
        try {
            effect.run();
        } catch (Throwable e) {
            System.getLogger(Leasehold.class.getName()).log(System.Logger.Level.ERROR, "what follows a turn has failed", e);
        }
    }

    /** Does it after the turn. */
    void after(Runnable effect) {
        assert lock.isHeldByCurrentThread();
        after.add(effect);
    }

    /** Tells listeners and logs after the turn, in order. They may take long, and keep nothing else waiting. */
    void tell(Runnable told) {
        after(() -> tells.execute(() -> run(told)));
    }

    /** Takes a turn at that moment, or right after. */
    Deadline at(long moment, Runnable step) {
        Deadline deadline = new Deadline();
        if (moment != Clock.NEVER && !deadlines.isShutdown()) {
            Runnable due = () -> take(() -> {
                if (!deadline.isCancelled) {
                    step.run();
                }
            });
            deadline.task = deadlines.schedule(due, Clock.left(moment), TimeUnit.NANOSECONDS);
        }
        return deadline;
    }

    void close() {
        deadlines.shutdown();
    }

    /** What is to be done at some moment, unless it is cancelled. */
    static final class Deadline {
        private @Nullable Future<?> task;
        private boolean isCancelled;

        void cancel() {
            isCancelled = true;
            if (task != null) {
                task.cancel(false);
            }
        }
    }
}
