import java.lang.System.Logger.Level;
import java.util.*;
import java.util.concurrent.*;

/** Durations are in milliseconds. */
abstract class Locks {
    static final long LATE = 800; // an answer that is later than this is an error
    static final ScheduledExecutorService ENDS = timers(1), RENEWALS = timers(8);

    /** On the connection, or out of the pool, that all share. */
    abstract Long send(String... request) throws Exception;

    /** In the server's queue, on a connection of its own. */
    abstract void await(long end, String... request) throws Exception;

    /** Null if the lock is busy. */
    Lease acquire(String key, long ttl, long patience) throws Exception {
        return acquire(key, ttl, patience, 1);
    }

    /** The same where so many may hold the lock at a time; 0: any number. */
    Lease acquire(String key, long ttl, long patience, int share) throws Exception {
        String owner = ProcessHandle.current().pid() + ":" + UUID.randomUUID();
        String[] request = {"LOCK.ACQUIRE", key, owner, "" + ttl, "SHARE", "" + share};
        for (long end = now() + patience;;) {
            try {
                long asked = now();
                Long fence = send(request);
                if (fence != null && now() < asked + ttl) return new Lease(key, owner, fence, ttl, asked);
                if (fence == null && now() >= end) return null;
                if (fence == null) await(end, request); // a grant is confirmed by asking again
            } catch (Exception error) {
                if (now() >= end || error instanceof InterruptedException || isHopeless(error)) {
                    RENEWALS.submit(() -> send("LOCK.RELEASE", key, owner)); // it may have been granted
                    throw error;
                }
                Thread.sleep(50);
            }
        }
    }

    final class Lease implements AutoCloseable {
        final String key, owner;
        final long fence;
        /** Complete when the lock is lost. */
        final CompletableFuture<Void> lost = new CompletableFuture<>();
        private long end;
        private boolean over;
        private Future<?> ending, renewing;

        Lease(String key, String owner, long fence, long ttl, long asked) {
            this.key = key;
            this.owner = owner;
            this.fence = fence;
            until(asked, ttl);
        }

        synchronized long validFor() {
            return lost.isDone() ? 0 : Math.max(0, end - now());
        }

        boolean extend(long ttl) throws Exception {
            long asked = now(); // the lease is counted from here
            boolean held = send("LOCK.EXTEND", key, owner, "" + ttl, "" + fence) == 1;
            if (held) until(asked, ttl);
            else lose();
            return held;
        }

        boolean release() throws Exception {
            keep();
            return send("LOCK.RELEASE", key, owner, "" + fence) == 1;
        }

        /** Renews no more, and leaves the lock to its lease. */
        synchronized void keep() {
            over = true;
            ending.cancel(false);
            renewing.cancel(false);
        }

        /** Releases. What became of the work is worth more than an error here. */
        @Override public void close() {
            String failed = "is held until its lease ends";
            try {
                failed = release() ? null : "was lost before it was released";
            } catch (Exception error) {
                failed += ": " + error;
            }
            if (failed != null) System.getLogger("locks").log(Level.WARNING, key + " " + failed);
        }

        private synchronized void until(long asked, long ttl) {
            if (over) return;
            if (ending != null) keep();
            over = false;
            end = asked + ttl;
            ending = ENDS.schedule(this::lose, end - now(), TimeUnit.MILLISECONDS);
            renewing = RENEWALS.scheduleAtFixedRate(() -> renew(ttl), ttl / 3, ttl / 3, TimeUnit.MILLISECONDS);
        }

        private void renew(long ttl) {
            try {
                extend(ttl);
            } catch (Exception error) { // again in a third of the ttl, or it is lost
            }
        }

        private synchronized void lose() {
            if (over) return;
            keep();
            lost.complete(null);
        }
    }

    /** Asking again would not help. */
    static boolean isHopeless(Exception error) {
        return String.valueOf(error.getMessage()).matches("(?s).*\\b(ERR|WRONGTYPE|NOPERM|NOAUTH|WRONGPASS) .*");
    }

    static long now() {
        return System.nanoTime() / 1_000_000;
    }

    static ScheduledExecutorService timers(int threads) {
        return Executors.newScheduledThreadPool(threads, work -> {
            Thread thread = new Thread(work, "locks");
            thread.setDaemon(true);
            return thread;
        });
    }
}
