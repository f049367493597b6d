package org.example.leasehold;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The clock of this package, in nanoseconds. It never steps, and goes on while the machine is suspended, as the server's does.
 *
 * <p>{@link System#nanoTime} stands still then. So when the clock on the wall has jumped, it is asked how long the machine has
 * been up; where nobody can say, the jump counts as time that has passed. A lease that seems over too early does no harm.
 */
final class Clock {
    static final long NEVER = Long.MAX_VALUE;
    private static final long MILLI = 1_000_000;
    private static final long JUMP = 5 * MILLI;

    private static final Path UPTIME = Path.of("/proc/uptime");
    private static final ReentrantLock LOOKING = new ReentrantLock();
    private static final long STARTED = System.nanoTime();
    private static final long STARTED_WALL = System.currentTimeMillis();
    private static final long STARTED_UP = uptime();

    /** How far the clock on the wall was ahead when somebody looked last, and how long the machine has been suspended. */
    private static volatile long wallAhead;

    private static volatile long suspended;

    private Clock() {}

    static long now() {
        long fine = System.nanoTime() - STARTED;
        long wall = (System.currentTimeMillis() - STARTED_WALL) * MILLI - fine;
        if (Math.abs(wall - wallAhead) > JUMP) {
            LOOKING.lock();
            try {
                long up = STARTED_UP < 0 ? -1 : uptime();
                long gap = up < 0 ? suspended + Math.max(0, wall - wallAhead) : up - STARTED_UP - (System.nanoTime() - STARTED);
                suspended = Math.max(suspended, gap);
                wallAhead = wall;
            } finally {
                LOOKING.unlock();
            }
        }
        return fine + suspended;
    }

    private static long uptime() {
        try {
            String text = Files.readString(UPTIME);
            return (long) (Double.parseDouble(text.substring(0, text.indexOf(' '))) * 1e9);
        } catch (IOException | RuntimeException e) {
            return -1;
        }
    }

    static long add(long moment, long nanos) {
        return nanos >= NEVER - moment ? NEVER : moment + nanos;
    }

    /** How long it is until then: 0 if it has passed. */
    static long left(long moment) {
        return moment == NEVER ? NEVER : Math.max(0, moment - now());
    }

    /**
     * A lease is counted from before it was asked for, less what two clocks may differ by meanwhile.
     *
     * <pre>
     * asked              granted, by the server's clock                    its lease ends
     *   ├────────────────────┼────────────────────── ttl ─────────────────────┤
     *   ├────────────────────── ttl ──────────────────────┤
     *                                        valid until ┤ drift ┤
     * </pre>
     */
    static long validUntil(long asked, long ttl) {
        return add(asked, Math.max(0, ttl - drift(ttl)));
    }

    static long drift(long ttl) {
        return ttl / 100 + 2 * MILLI;
    }

    /** How long to wait for each answer: less where the lease is short. */
    static long patienceForAnswer(long response, long ttl) {
        return Math.min(response, Math.max(ttl / 5, Math.min(ttl / 2, 100 * MILLI)));
    }

    /** A rest between tries grows with them. Half of it is left to chance, so that many do not try at once. */
    enum Rest {
        RETRY(50, 500),
        POLL(20, 250),
        FULL(100, 2000);

        private final long first;
        private final long longest;

        Rest(long first, long longest) {
            this.first = first * MILLI;
            this.longest = longest * MILLI;
        }

        long after(int tries) {
            long full = Math.min(longest, first << Math.min(tries, 16));
            return full / 2 + ThreadLocalRandom.current().nextLong(full / 2 + 1);
        }
    }
}
