package org.example.leasehold.spring;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;
import java.util.stream.Collectors;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.example.leasehold.NamedLock;
import org.example.leasehold.Options;
import org.example.leasehold.Outcome;
import org.jspecify.annotations.Nullable;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;
import org.springframework.integration.support.locks.ExpirableLockRegistry;
import org.springframework.integration.support.locks.RenewableLockRegistry;
import org.springframework.util.Assert;

/**
 * Has Spring Integration use the locks of a server of Redis or Valkey.
 *
 * <p>A lock is named {@code registryKey:lockKey} on the server, as those of {@code RedisLockRegistry} are: the two keep each
 * other out. Whoever waits is in the queue of the server, so that threads and processes have the lock in the order of coming.
 *
 * <p>A thread that holds a lock may lock it again; no server is asked for that. Leases renew themselves until the lock is
 * unlocked: no {@code TaskScheduler} is needed, and none is used. To unlock a lock that was lost throws
 * {@link ConcurrentModificationException}, and to lock it again {@link CannotAcquireLockException}. To unlock what the thread
 * does not hold throws {@link IllegalMonitorStateException}. A release that fails is logged, and the lock stays until its
 * lease ends. Locks have no conditions.
 */
public final class LeaseholdLockRegistry implements ExpirableLockRegistry<DistributedLock>, RenewableLockRegistry<DistributedLock> {
    private static final Duration TTL = Duration.ofSeconds(30);
    private static final Duration FOREVER = Duration.ofDays(36_500);
    private static final int CAPACITY = 100_000;

    private final Leasehold locks;
    private final String registryKey;
    private final Duration ttl;
    private final ReentrantLock caching = new ReentrantLock();
    private final Map<String, RegistryLock> cached = new Cache();
    /** Not in the locks themselves: a thread that has obtained a lock twice may hold it by either. */
    private final Map<Holder, Held> held = new ConcurrentHashMap<>();

    private volatile int capacity = CAPACITY;
    private volatile Options options;

    /**
     * Returns a registry whose leases last 30 s unless they are renewed.
     *
     * @param locks stays open
     * @param registryKey what the name of each lock begins with, after the prefix that the settings of the locks have
     */
    public LeaseholdLockRegistry(Leasehold locks, String registryKey) {
        this(locks, registryKey, TTL);
    }

    /**
     * Returns a registry.
     *
     * @param locks stays open
     * @param registryKey what the name of each lock begins with, after the prefix that the settings of the locks have
     * @param ttl how long a lease lasts unless it is renewed
     */
    public LeaseholdLockRegistry(Leasehold locks, String registryKey, Duration ttl) {
        this.locks = locks;
        this.registryKey = registryKey;
        this.ttl = ttl;
        this.options = Options.none().ttl(ttl);
    }

    /**
     * Has leases renewed for so long at the most, and not until the lock is unlocked: a thread that hangs loses it.
     *
     * @param limit zero: they are not renewed
     */
    public void setRenewFor(Duration limit) {
        options = options.renewFor(limit);
    }

    /**
     * Sets how many locks are remembered, 100,000: the one that was not obtained for longest is forgotten first. It can still
     * be used.
     *
     * @param capacity at least 1
     */
    public void setCacheCapacity(int capacity) {
        Assert.isTrue(capacity > 0, "'capacity' must be greater than 0");
        this.capacity = capacity;
    }

    /**
     * Returns the lock of a key: the same one as before, unless it was forgotten.
     *
     * @param lockKey a string
     * @return the lock
     */
    @Override
    public DistributedLock obtain(Object lockKey) {
        Assert.isInstanceOf(String.class, lockKey);
        String key = (String) lockKey;
        caching.lock();
        try {
            return cached.computeIfAbsent(key, RegistryLock::new);
        } finally {
            caching.unlock();
        }
    }

    @Override
    public void expireUnusedOlderThan(long age) {
        Set<String> inUse = held.keySet().stream().map(Holder::key).collect(Collectors.toSet());
        long now = System.nanoTime();
        caching.lock();
        try {
            cached.values().removeIf(lock -> !inUse.contains(lock.key) && TimeUnit.NANOSECONDS.toMillis(now - lock.lockedAt) >= age);
        } finally {
            caching.unlock();
        }
    }

    /**
     * Has the lease end so long from now as the registry's leases last. {@link IllegalStateException} says that this thread does
     * not hold the lock, or that its lease was not extended.
     *
     * @param lockKey the key
     */
    @Override
    public void renewLock(Object lockKey) {
        renewLock(lockKey, ttl);
    }

    /**
     * Has the lease end so long from now, and renews it by as much from now on: see {@link #renewLock(Object)}.
     *
     * @param lockKey the key
     * @param ttl how long the lease is to last
     */
    @Override
    public void renewLock(Object lockKey, Duration ttl) {
        Lease lease = leaseOf(lockKey);
        if (lease == null) {
            throw new IllegalStateException("this thread does not hold the lock " + lockKey);
        }
        try {
            lease.extend(ttl);
        } catch (LeaseholdException e) {
            throw new IllegalStateException("not renewed: " + e.getMessage(), e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException("interrupted while the lock " + lockKey + " was renewed", e);
        }
    }

    /**
     * Returns the lease of a lock that this thread holds: it has the fence, and tells of a loss. It is released by unlocking.
     *
     * @param lockKey the key
     * @return null if this thread does not hold the lock
     */
    public @Nullable Lease leaseOf(Object lockKey) {
        Held mine = held.get(new Holder((String) lockKey, Thread.currentThread()));
        return mine == null ? null : mine.lease;
    }

    private record Holder(String key, Thread thread) {}

    /** Only the thread that holds the lock looks at it. */
    private static final class Held {
        final Lease lease;
        int count = 1;

        Held(Lease lease) {
            this.lease = lease;
        }
    }

    private final class Cache extends LinkedHashMap<String, RegistryLock> {
        private static final long serialVersionUID = 1;

        Cache() {
            super(16, 0.75f, true);
        }

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, RegistryLock> eldest) {
            return size() > capacity;
        }
    }

    private interface Request {
        @Nullable Lease lease() throws InterruptedException;
    }

    private final class RegistryLock implements DistributedLock {
        private final String key;
        private final NamedLock lock;
        private volatile long lockedAt = System.nanoTime();

        RegistryLock(String key) {
            this.key = key;
            this.lock = locks.write(registryKey + ":" + key);
        }

        private Holder holder() {
            return new Holder(key, Thread.currentThread());
        }

        private boolean take(Request request) throws InterruptedException {
            Held mine = held.get(holder());
            if (mine != null) {
                if (!mine.lease.isHeld()) {
                    throw new CannotAcquireLockException("the lock " + key + " was lost, and has to be unlocked");
                }
                mine.count++;
                return true;
            }
            try {
                Lease lease = request.lease();
                if (lease == null) {
                    return false;
                }
                held.put(holder(), new Held(lease));
                lockedAt = System.nanoTime();
                return true;
            } catch (LeaseholdException.Busy e) {
                return false;
            } catch (LeaseholdException e) {
                throw new CannotAcquireLockException("not locked: " + e.getMessage(), e);
            }
        }

        private void lockInterruptibly(Options options) throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            lock(() -> lock.acquire(options.patience(FOREVER)));
        }

        private void lock(Request request) throws InterruptedException {
            if (!take(request)) {
                throw new CannotAcquireLockException("the lock " + key + " was held by others for a hundred years");
            }
        }

        private void lock(Options options) {
            try {
                lock(() -> lock.acquireUninterruptibly(options.patience(FOREVER)));
            } catch (InterruptedException e) {
                throw new AssertionError("an interruption is put off", e);
            }
        }

        private boolean tryLock(Duration patience, Options options) throws InterruptedException {
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            if (patience.isNegative() || patience.isZero()) {
                return take(() -> lock.tryAcquire(options));
            }
            Duration bounded = patience.compareTo(FOREVER) > 0 ? FOREVER : patience;
            return take(() -> lock.acquire(options.patience(bounded)));
        }

        @Override
        public void lock() {
            lock(options);
        }

        @Override
        public void lock(Duration ttl) {
            lock(options.ttl(ttl));
        }

        @Override
        public void lockInterruptibly() throws InterruptedException {
            lockInterruptibly(options);
        }

        @Override
        public boolean tryLock() {
            boolean wasInterrupted = Thread.interrupted();
            try {
                return tryLock(Duration.ZERO, options);
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
            return tryLock(Duration.ofNanos(unit.toNanos(time)), options);
        }

        @Override
        public boolean tryLock(Duration patience, Duration ttl) throws InterruptedException {
            return tryLock(patience, options.ttl(ttl));
        }

        @Override
        public void unlock() {
            Held mine = held.get(holder());
            if (mine == null) {
                throw new IllegalMonitorStateException("this thread does not hold the lock " + key);
            }
            if (--mine.count > 0) {
                return;
            }
            held.remove(holder());
            boolean wasHeld = mine.lease.isHeld();
            if (released(mine.lease) == Outcome.LATE || !wasHeld) {
                throw new ConcurrentModificationException(
                        "the lock " + key + " was lost while this thread held it: what it protects may have been changed by others");
            }
        }

        /** The server takes a bounded time to answer, so that an interruption is put off. Null: nobody has answered. */
        private static @Nullable Outcome released(Lease lease) {
            boolean wasInterrupted = false;
            try {
                while (true) {
                    try {
                        return lease.release();
                    } catch (InterruptedException e) {
                        wasInterrupted = true;
                    }
                }
            } catch (LeaseholdException e) {
                // The lease has told the log. Until it ends nobody else has the lock.
                return null;
            } finally {
                if (wasInterrupted) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        @Override
        public Condition newCondition() {
            throw new UnsupportedOperationException("a lock on a server has no conditions");
        }

        @Override
        public String toString() {
            return "lock " + registryKey + ":" + key;
        }
    }
}
