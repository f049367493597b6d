package org.example.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.ScriptOutputType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.ConcurrentModificationException;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import org.example.leasehold.Leasehold;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;
import org.springframework.dao.CannotAcquireLockException;
import org.springframework.integration.support.locks.DistributedLock;

/**
 * The contract of registries: what the interfaces say, and what {@code RedisLockRegistry} does where they say nothing. Spring
 * Integration publishes no tests for registries of others.
 */
@Timeout(60)
class LeaseholdLockRegistryTest {
    private static Server server;
    private static Leasehold locks;
    private LeaseholdLockRegistry registry;
    /** As another process has it. */
    private LeaseholdLockRegistry other;
    private String key;

    @BeforeAll
    static void start() {
        server = Server.withModule();
        locks = Leasehold.over(server.client);
    }

    @AfterAll
    static void stop() {
        locks.close();
        server.close();
    }

    @BeforeEach
    void open(TestInfo test) {
        registry = new LeaseholdLockRegistry(locks, "r");
        other = new LeaseholdLockRegistry(locks, "r");
        key = test.getTestMethod().orElseThrow().getName();
    }

    /** What another thread does, which ends with it. */
    private static <T> FutureTask<T> inAnotherThread(Callable<T> work) {
        FutureTask<T> task = new FutureTask<>(work);
        Thread thread = new Thread(task);
        thread.setDaemon(true);
        thread.start();
        return task;
    }

    private static <T> T elsewhere(Callable<T> work) throws Exception {
        return inAnotherThread(work).get(20, TimeUnit.SECONDS);
    }

    private static boolean isFree(LeaseholdLockRegistry registry, String key) throws Exception {
        return elsewhere(() -> {
            DistributedLock lock = registry.obtain(key);
            boolean isFree = lock.tryLock();
            if (isFree) {
                lock.unlock();
            }
            return isFree;
        });
    }

    private long waiters() {
        return server.ask().<Long>eval("return #redis.call('LOCK.WAITERS', KEYS[1])", ScriptOutputType.INTEGER, "r:" + key);
    }

    private static void until(BooleanSupplier condition) throws InterruptedException {
        for (long end = System.nanoTime() + 20_000_000_000L; !condition.getAsBoolean(); Thread.sleep(5)) {
            assertTrue(System.nanoTime() < end, "it did not come to that");
        }
    }

    @Test
    void aKeyHasOneLockAndOnlyStringsAreKeys() {
        assertSame(registry.obtain(key), registry.obtain(key));
        assertNotSame(registry.obtain(key), registry.obtain("another"));
        assertNotSame(registry.obtain(key), other.obtain(key));
        assertThrows(IllegalArgumentException.class, () -> registry.obtain(1));
    }

    @Test
    void whatIsLockedIsHeldUnderTheNameThatRedisLockRegistryHas() throws Exception {
        DistributedLock lock = registry.obtain(key);
        lock.lock();
        assertNotNull(server.ask().get("r:" + key));
        assertFalse(isFree(registry, key));
        assertFalse(isFree(other, key));
        lock.unlock();
        assertNull(server.ask().get("r:" + key));
        assertTrue(isFree(other, key));

        // As RedisLockRegistry would have it: the id of a client.
        server.ask().set("r:" + key, "4d2a");
        assertFalse(lock.tryLock());
    }

    @Test
    void aThreadThatHoldsALockHasItAgain() throws Exception {
        DistributedLock lock = registry.obtain(key);
        lock.lock();
        lock.lockInterruptibly();
        assertTrue(lock.tryLock());
        assertTrue(lock.tryLock(1, TimeUnit.SECONDS));
        for (int times = 3; times > 0; times--) {
            lock.unlock();
            assertFalse(isFree(other, key));
        }
        lock.unlock();
        assertTrue(isFree(other, key));
    }

    @Test
    void onlyTheThreadThatHoldsALockUnlocksIt() throws Exception {
        DistributedLock lock = registry.obtain(key);
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
        lock.lock();
        var error = assertThrows(ExecutionException.class, () -> elsewhere(() -> {
            lock.unlock();
            return true;
        }));
        assertEquals(IllegalMonitorStateException.class, error.getCause().getClass());
        assertFalse(isFree(other, key));
        lock.unlock();
    }

    @Test
    void whoWaitsHasTheLockInTheOrderOfComing() throws Exception {
        DistributedLock lock = registry.obtain(key);
        lock.lock();
        List<Integer> order = new ArrayList<>();
        List<FutureTask<Boolean>> all = new ArrayList<>();
        for (int each = 0; each < 4; each++) {
            int number = each;
            LeaseholdLockRegistry mine = each % 2 == 0 ? registry : other;
            all.add(inAnotherThread(() -> {
                mine.executeLocked(key, () -> order.add(number));
                return true;
            }));
            until(() -> waiters() == number + 1);
        }
        lock.unlock();
        for (FutureTask<Boolean> each : all) {
            each.get(20, TimeUnit.SECONDS);
        }
        assertEquals(List.of(0, 1, 2, 3), order);
    }

    @Test
    void aWaitEndsWithItsTime() throws Exception {
        DistributedLock lock = other.obtain(key);
        registry.obtain(key).lock();
        long begun = System.nanoTime();
        assertFalse(elsewhere(() -> lock.tryLock(150, TimeUnit.MILLISECONDS)));
        assertFalse(elsewhere(() -> lock.tryLock(Duration.ofMillis(150), Duration.ofSeconds(5))));
        assertTrue(System.nanoTime() - begun >= 300_000_000);
        var error = assertThrows(
                ExecutionException.class, () -> elsewhere(() -> other.executeLocked(key, Duration.ofMillis(10), () -> "never")));
        assertEquals(TimeoutException.class, error.getCause().getClass());
        FutureTask<Boolean> waits = inAnotherThread(() -> lock.tryLock(20, TimeUnit.SECONDS));
        until(() -> waiters() == 1);
        registry.obtain(key).unlock();
        assertTrue(waits.get(20, TimeUnit.SECONDS));
    }

    @Test
    void anInterruptionEndsAWaitThatAllowsItAndLeavesNoPlace() throws Exception {
        DistributedLock lock = registry.obtain(key);
        lock.lock();
        Thread[] waiting = new Thread[2];
        FutureTask<Boolean> interruptible = inAnotherThread(() -> {
            waiting[0] = Thread.currentThread();
            assertThrows(InterruptedException.class, lock::lockInterruptibly);
            return true;
        });
        until(() -> waiters() == 1);
        waiting[0].interrupt();
        assertTrue(interruptible.get(20, TimeUnit.SECONDS));
        until(() -> waiters() == 0);

        FutureTask<Boolean> patient = inAnotherThread(() -> {
            waiting[1] = Thread.currentThread();
            lock.lock();
            lock.unlock();
            return Thread.interrupted();
        });
        until(() -> waiters() == 1);
        waiting[1].interrupt();
        until(() -> !waiting[1].isInterrupted() && waiters() == 1);
        lock.unlock();
        assertTrue(patient.get(20, TimeUnit.SECONDS));
        assertTrue(isFree(other, key));

        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> lock.tryLock(1, TimeUnit.SECONDS));
        Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, lock::lockInterruptibly);
        Thread.currentThread().interrupt();
        assertTrue(lock.tryLock());
        lock.unlock();
        assertTrue(Thread.interrupted());
    }

    @Test
    void toUnlockALostLockTellsThatItWasLost() throws Exception {
        DistributedLock lock = registry.obtain(key);
        lock.lock();
        server.ask().del("r:" + key);
        DistributedLock theirs = other.obtain(key);
        FutureTask<Boolean> holds = inAnotherThread(theirs::tryLock);
        assertTrue(holds.get(20, TimeUnit.SECONDS));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertNotNull(server.ask().get("r:" + key), "it is somebody else's");
        assertThrows(IllegalMonitorStateException.class, lock::unlock);
    }

    @Test
    void aLeaseThatIsNotRenewedIsLostAndNotLockedAgainBeforeItIsUnlocked() throws Exception {
        registry.setRenewFor(Duration.ZERO);
        DistributedLock lock = registry.obtain(key);
        lock.lock(Duration.ofSeconds(1));
        var lease = registry.leaseOf(key);
        until(() -> !lease.isHeld());
        assertThrows(CannotAcquireLockException.class, lock::tryLock);
        assertThrows(ConcurrentModificationException.class, lock::unlock);
        assertTrue(lock.tryLock(Duration.ofSeconds(5), Duration.ofSeconds(5)));
        lock.unlock();
    }

    @Test
    void aLeaseRenewsItselfUntilTheLockIsUnlocked() throws Exception {
        LeaseholdLockRegistry brief = new LeaseholdLockRegistry(locks, "r", Duration.ofMillis(300));
        DistributedLock lock = brief.obtain(key);
        lock.lock();
        long begun = System.nanoTime();
        until(() -> System.nanoTime() - begun > 1_000_000_000);
        assertFalse(isFree(other, key));
        lock.unlock();
        assertTrue(isFree(other, key));
    }

    @Test
    void aRenewalIsForWhoHoldsTheLock() throws Exception {
        registry.setRenewFor(Duration.ZERO);
        DistributedLock lock = registry.obtain(key);
        assertThrows(IllegalStateException.class, () -> registry.renewLock(key));
        lock.lock(Duration.ofSeconds(5));
        registry.renewLock(key);
        assertTrue(server.ask().pttl("r:" + key) > 20_000);
        registry.renewLock(key, Duration.ofMinutes(5));
        assertTrue(server.ask().pttl("r:" + key) > 200_000);
        var error = assertThrows(ExecutionException.class, () -> elsewhere(() -> {
            registry.renewLock(key);
            return true;
        }));
        assertEquals(IllegalStateException.class, error.getCause().getClass());
        server.ask().del("r:" + key);
        assertThrows(IllegalStateException.class, () -> registry.renewLock(key));
        assertThrows(ConcurrentModificationException.class, lock::unlock);
    }

    @Test
    void locksThatAreNotInUseAreForgottenAndCanBeUsedAllTheSame() throws Exception {
        DistributedLock used = registry.obtain(key);
        DistributedLock unused = registry.obtain("unused");
        registry.expireUnusedOlderThan(60_000);
        assertSame(unused, registry.obtain("unused"));
        used.lock();
        registry.expireUnusedOlderThan(0);
        assertSame(used, registry.obtain(key));
        DistributedLock next = registry.obtain("unused");
        assertNotSame(unused, next);

        unused.lock();
        assertFalse(elsewhere(() -> next.tryLock()));
        assertTrue(next.tryLock());
        next.unlock();
        unused.unlock();
        used.unlock();
    }

    @Test
    void theLockThatWasNotObtainedForLongestIsForgottenFirst() {
        registry.setCacheCapacity(2);
        DistributedLock first = registry.obtain("1");
        DistributedLock second = registry.obtain("2");
        registry.obtain("1");
        registry.obtain("3");
        assertSame(first, registry.obtain("1"));
        assertNotSame(second, registry.obtain("2"));
        assertThrows(IllegalArgumentException.class, () -> registry.setCacheCapacity(0));
    }

    @Test
    void whoHoldsALockHasItsFence() throws Exception {
        DistributedLock lock = registry.obtain(key);
        assertNull(registry.leaseOf(key));
        lock.lock();
        long first = registry.leaseOf(key).fence();
        assertNull(elsewhere(() -> registry.leaseOf(key)));
        lock.unlock();
        lock.lock();
        assertTrue(registry.leaseOf(key).fence() > first);
        lock.unlock();
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }
}
