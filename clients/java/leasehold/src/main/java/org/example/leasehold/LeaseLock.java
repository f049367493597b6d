package org.example.leasehold;

import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.Lock;
import org.jspecify.annotations.Nullable;

/** A lock as the JDK has them. A thread that holds it may lock it again: that is counted here, and no server is asked. */
final class LeaseLock implements Lock {
    private static final class Held {
        final Lease lease;
        int count = 1;

        Held(Lease lease) {
            this.lease = lease;
        }
    }

    private final NamedLock lock;
    private final Map<Thread, Held> held = new ConcurrentHashMap<>();

    LeaseLock(NamedLock lock) {
        this.lock = lock;
    }

    private boolean isMine() {
        Held mine = held.get(Thread.currentThread());
        if (mine == null) {
            return false;
        }
        Loss loss = mine.lease.loss();
        if (loss != null) {
            throw new LeaseholdException.Lost(mine.lease.name(), loss, null);
        }
        mine.count++;
        return true;
    }

    private boolean take(@Nullable Lease lease) {
        if (lease != null) {
            held.put(Thread.currentThread(), new Held(lease));
        }
        return lease != null;
    }

    private static Options patience(Duration patience) {
        return Options.none().patience(patience);
    }

    @Override
    public void lock() {
        boolean wasInterrupted = false;
        try {
            while (true) {
                try {
                    lockInterruptibly();
                    return;
                } catch (InterruptedException e) {
                    wasInterrupted = true;
                }
            }
        } finally {
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void lockInterruptibly() throws InterruptedException {
        if (!isMine()) {
            take(lock.acquire(patience(Settings.LONGEST)));
        }
    }

    @Override
    public boolean tryLock() {
        if (isMine()) {
            return true;
        }
        boolean wasInterrupted = Thread.interrupted();
        try {
            return take(lock.tryAcquire());
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
        if (isMine()) {
            return true;
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
        if (mine == null) {
            throw new IllegalMonitorStateException("this thread does not hold the lock");
        }
        if (--mine.count == 0) {
            held.remove(Thread.currentThread());
            mine.lease.close();
        }
    }

    @Override
    public Condition newCondition() {
        throw new UnsupportedOperationException("a lock on a server has no conditions");
    }
}
