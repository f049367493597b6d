package org.example.leasehold;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import org.jspecify.annotations.Nullable;

/**
 * Locks as the JDK has them. A thread that holds one may lock it again: that is counted here, and no server is asked. So may a
 * writer that wants to read; once it writes no more, it lets other readers in. A reader that wants to write is refused: two who
 * waited for that would wait for each other.
 */
final class LeaseLocks implements ReadWriteLock {
    private static final class Held {
        final Lease lease;
        int reads;
        int writes;

        Held(Lease lease) {
            this.lease = lease;
        }
    }

    private final Map<Thread, Held> held = new ConcurrentHashMap<>();
    private final Side reads;
    private final Side writes;

    LeaseLocks(NamedLock read, NamedLock write) {
        this.reads = new Side(read, false);
        this.writes = new Side(write, true);
    }

    @Override
    public Lock readLock() {
        return reads;
    }

    @Override
    public Lock writeLock() {
        return writes;
    }

    private final class Side implements Lock {
        private final NamedLock lock;
        private final boolean isWrite;

        Side(NamedLock lock, boolean isWrite) {
            this.lock = lock;
            this.isWrite = isWrite;
        }

        private int count(Held mine, int by) {
            return isWrite ? mine.writes += by : (mine.reads += by);
        }

        private @Nullable Held mine() {
            Held mine = held.get(Thread.currentThread());
            Loss loss = mine == null ? null : mine.lease.loss();
            if (mine != null && loss != null) {
                throw new LeaseholdException.Lost(mine.lease.name(), loss, null);
            }
            return mine;
        }

        private boolean isReaderThatWrites(Held mine) {
            return isWrite && mine.writes == 0;
        }

        private boolean take(@Nullable Lease lease) {
            if (lease != null) {
                Held mine = new Held(lease);
                count(mine, 1);
                held.put(Thread.currentThread(), mine);
            }
            return lease != null;
        }

        private Options patience(Duration patience) {
            return Options.none().patience(patience);
        }

        @Override
        public void lock() {
            if (!reenters()) {
                take(lock.acquireUninterruptibly(patience(Settings.LONGEST)));
            }
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            if (!reenters()) {
                take(lock.acquire(patience(Settings.LONGEST)));
            }
        }

        /** False: this thread does not hold it. */
        private boolean reenters() {
            Held mine = mine();
            if (mine == null) {
                return false;
            }
            if (isReaderThatWrites(mine)) {
                throw new IllegalMonitorStateException("this thread reads, and would wait for itself to write");
            }
            count(mine, 1);
            return true;
        }

        @Override
        public boolean tryLock() {
            boolean wasInterrupted = Thread.interrupted();
            try {
                return tryLock(0, TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                wasInterrupted = true;
                return false;
            } finally {
                if (wasInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public boolean tryLock(long time, TimeUnit unit) throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            Held mine = mine();
            if (mine != null) {
                boolean may = !isReaderThatWrites(mine);
                if (may) {
                    count(mine, 1);
                }
                return may;
            }
            if (time <= 0) {
                return take(lock.tryAcquire());
            }
            long nanos = Math.min(unit.toNanos(time), Settings.LONGEST.toNanos());
            try {
                return take(lock.acquire(patience(Duration.ofNanos(nanos))));
            } catch (LeaseholdException.Busy e) {
                return false;
            }
        }

        @Override
        public void unlock() {
            Held mine = held.get(Thread.currentThread());
            if (mine == null || count(mine, 0) == 0) {
                throw new IllegalMonitorStateException("this thread does not hold the lock");
            }
            boolean isLast = count(mine, -1) == 0;
            if (mine.reads + mine.writes == 0) {
                held.remove(Thread.currentThread());
                mine.lease.close();
            } else if (isWrite && isLast) {
                // If nobody answers, the others are kept out for a little longer.
                Futures.settle(mine.lease.downgradeAsync());
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a lock on a server has no conditions");
        }
    }
}
