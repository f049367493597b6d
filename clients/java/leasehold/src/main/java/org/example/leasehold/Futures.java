package org.example.leasehold;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.RejectedExecutionException;
import org.jspecify.annotations.Nullable;

/** The futures that a program has are not those of the package: the program may block, or complete them itself. */
final class Futures {
    private Futures() {}

    static <T extends @Nullable Object> CompletableFuture<T> outside(CompletableFuture<T> inside, Executor executor) {
        CompletableFuture<T> outside = new CompletableFuture<>();
        inside.whenComplete((value, error) -> run(executor, () -> complete(outside, value, error)));
        return outside;
    }

    static void run(Executor executor, Runnable work) {
        try {
            executor.execute(work);
        } catch (RejectedExecutionException e) {
            // It may block, and the threads of this package may not.
            ForkJoinPool.commonPool().execute(work);
        }
    }

    /** False if it was completed before. */
    static <T extends @Nullable Object> boolean complete(CompletableFuture<T> future, T value, @Nullable Throwable error) {
        return error == null ? future.complete(value) : future.completeExceptionally(error);
    }

    static <T extends @Nullable Object> T await(CompletableFuture<T> inside) throws InterruptedException {
        try {
            return inside.get();
        } catch (ExecutionException e) {
            if (e.getCause() instanceof LeaseholdException error) {
                throw error;
            }
            throw new IllegalStateException(e.getCause());
        }
    }

    /** Waits for it, and says nothing of what came of it. An interruption is put off: what is waited for is bounded. */
    static void settle(CompletableFuture<?> inside) {
        inside.handle((value, error) -> true).join();
    }
}
