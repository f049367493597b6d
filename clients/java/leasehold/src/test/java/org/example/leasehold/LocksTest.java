package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.ArrayOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.Lock;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Test;

/** Locks on a server with the module. */
class LocksTest extends ModuleTest {

    private static Options ttl(long millis) {
        return Options.none().ttl(Duration.ofMillis(millis));
    }

    private static long waiters(String name) {
        ProtocolKeyword command = new ProtocolKeyword() {
            @Override
            public byte[] getBytes() {
                return "LOCK.WAITERS".getBytes(StandardCharsets.US_ASCII);
            }
        };
        return server.ask()
                .dispatch(command, new ArrayOutput<>(StringCodec.UTF8), new CommandArgs<>(StringCodec.UTF8).addKey(name))
                .size();
    }

    @Test
    void aLockIsHeldByOneAndItsFencesGrow() throws Exception {
        long first;
        try (Lease lease = locks.acquire(name)) {
            first = lease.fence();
            assertNull(locks.tryAcquire(name));
            assertTrue(lease.isHeld());
            assertTrue(lease.validFor().toMillis() > 29_000 && lease.validFor().toMillis() < 30_000);
            assertEquals(first + ":" + lease.owner(), server.ask().get(name));
        }
        assertNull(server.ask().get(name));
        Lease second = locks.tryAcquire(name);
        assertNotNull(second);
        assertTrue(second.fence() > first);
        assertEquals(Outcome.RELEASED, second.release());
        assertEquals(Loss.RELEASED, second.loss());
        assertEquals(Duration.ZERO, second.validFor());
    }

    @Test
    void thoseWhoWaitAreGrantedInTheOrderOfComing() throws Exception {
        Lease holder = locks.acquire(name);
        List<Integer> order = Collections.synchronizedList(new ArrayList<>());
        List<CompletableFuture<?>> all = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            int number = i;
            all.add(locks.acquireAsync(name).thenCompose(lease -> {
                order.add(number);
                return lease.releaseAsync();
            }));
            Until.holds(() -> waiters(name) == number + 1);
        }
        holder.release();
        CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get(10, TimeUnit.SECONDS);
        for (int i = 0; i < 20; i++) {
            assertEquals(i, order.get(i));
        }
    }

    @Test
    void aGrantIsToldByAMessageAndTakesTwoCommands() throws Exception {
        try (Lease warm = locks.acquire(name)) {
            CompletableFuture<Lease> waiting = locks.acquireAsync(name);
            Until.holds(() -> waiters(name) == 1);
            warm.release();
            waiting.get().release();
        }
        Lease holder = locks.acquire(name);
        CompletableFuture<Lease> waiting = locks.acquireAsync(name);
        Until.holds(() -> waiters(name) == 1);
        server.ask().configResetstat();
        holder.release();
        Lease lease = waiting.get();
        assertTrue(lease.isHeld());
        String calls = server.ask().info("commandstats");
        assertFalse(calls.toLowerCase(Locale.ROOT).contains("lock.acquire"), calls);
        lease.release();
    }

    @Test
    void aWaitEndsWithItsPatienceAndLeavesNothing() throws Exception {
        try (Lease holder = locks.acquire(name)) {
            long begun = System.nanoTime();
            assertThrows(LeaseholdException.Busy.class, () -> locks.acquire(name, Options.none().patience(Duration.ofMillis(300))));
            long took = (System.nanoTime() - begun) / 1_000_000;
            assertTrue(took >= 299 && took < 600, took + " ms");
            Until.holds(() -> waiters(name) == 0);
            assertTrue(holder.isHeld());
        }
    }

    @Test
    void aCancelledWaitLeavesNothing() throws Exception {
        try (Lease holder = locks.acquire(name)) {
            CompletableFuture<Lease> waiting = locks.acquireAsync(name);
            Until.holds(() -> waiters(name) == 1);
            waiting.cancel(true);
            Until.holds(() -> waiters(name) == 0);
            assertTrue(holder.isHeld());
        }
    }

    @Test
    void anInterruptedWaitLeavesNothing() throws Exception {
        try (Lease holder = locks.acquire(name)) {
            CompletableFuture<Throwable> came = new CompletableFuture<>();
            Thread thread = new Thread(() -> {
                try {
                    came.complete(new AssertionError(locks.acquire(name).owner()));
                } catch (InterruptedException e) {
                    came.complete(e);
                }
            });
            thread.start();
            Until.holds(() -> waiters(name) == 1);
            thread.interrupt();
            assertTrue(came.get() instanceof InterruptedException);
            Until.holds(() -> waiters(name) == 0);
            assertTrue(holder.isHeld());
        }
    }

    @Test
    void aLeaseIsRenewed() throws Exception {
        try (Lease lease = locks.write(name).acquire(ttl(300))) {
            long begun = System.nanoTime();
            Until.holds(() -> System.nanoTime() - begun > 1_000_000_000);
            assertTrue(lease.isHeld());
            assertEquals(1, server.ask().exists(name));
        }
    }

    @Test
    void aDeletedLockIsTold() throws Exception {
        Lease lease = locks.write(name).acquire(ttl(600));
        CompletableFuture<Loss> told = new CompletableFuture<>();
        lease.onLost(lost -> told.complete(lost.loss()));
        server.ask().del(name);
        assertEquals(Loss.TAKEN, told.get(5, TimeUnit.SECONDS));
        assertEquals(Outcome.LATE, lease.release());
    }

    @Test
    void workIsStoppedWhenItsLockIsLostAndWhatComesNextIsNot() throws Exception {
        CountDownLatch never = new CountDownLatch(1);
        LeaseholdException.Lost lost = assertThrows(LeaseholdException.Lost.class, () -> locks.write(name).call(ttl(600), lease -> {
            server.ask().del(name);
            never.await();
            return lease;
        }));
        assertEquals(Loss.TAKEN, lost.loss());
        assertTrue(lost.getSuppressed()[0] instanceof InterruptedException);
        String done = locks.write(name).call(ttl(600), lease -> {
            server.ask().del(name);
            long begun = System.nanoTime();
            while (!Thread.currentThread().isInterrupted() && System.nanoTime() - begun < 10_000_000_000L) {
                Thread.onSpinWait();
            }
            assertTrue(Thread.currentThread().isInterrupted());
            return "done all the same";
        });
        assertEquals("done all the same", done);
        assertFalse(Thread.currentThread().isInterrupted());
    }

    @Test
    void aLeaseThatTheProgramHasDroppedIsReleased() throws Exception {
        drop();
        Until.holds(() -> {
            System.gc();
            return server.ask().exists(name) == 0;
        });
    }

    private void drop() throws InterruptedException {
        assertTrue(locks.acquire(name).isHeld());
    }

    @Test
    void aLossIsToldWhileTheServerIsSilent() throws Exception {
        Lease lease = locks.write(name).acquire(ttl(500));
        server.signal("STOP");
        long begun = System.nanoTime();
        assertEquals(Loss.EXPIRED, lease.lost().get(5, TimeUnit.SECONDS).loss());
        assertTrue(System.nanoTime() - begun < 700_000_000L);
        assertFalse(lease.isHeld());
        server.signal("CONT");
    }

    @Test
    void aLeaseThatIsNotRenewedEndsInTimeAndThatIsTold() throws Exception {
        Lease lease = locks.acquire(name, ttl(300).renewFor(Duration.ZERO));
        long begun = System.nanoTime();
        assertEquals(Loss.EXPIRED, lease.lost().get(5, TimeUnit.SECONDS).loss());
        assertTrue(System.nanoTime() - begun < 500_000_000L);
    }

    @Test
    void aReleaseTakesNoLongerThanWithinAndThrowsNothing() throws Exception {
        try (Leasehold impatient = Leasehold.over(server.client, Settings.defaults().within(Duration.ofMillis(300)))) {
            Lease lease = impatient.acquire(name);
            server.signal("STOP");
            long begun = System.nanoTime();
            lease.close();
            assertTrue(System.nanoTime() - begun < 600_000_000L);
            server.signal("CONT");
        }
    }

    @Test
    void anExtensionCountsFromNow() throws Exception {
        try (Lease lease = locks.acquire(name, ttl(5000))) {
            lease.extend(Duration.ofSeconds(60));
            assertTrue(lease.validFor().toMillis() > 55_000);
            assertTrue(server.ask().pttl(name) > 55_000);
            lease.extend(Duration.ofSeconds(2));
            assertTrue(lease.validFor().toMillis() < 2000);
        }
    }

    @Test
    void readersShareAndAWriterWaits() throws Exception {
        Lease first = locks.read(name).acquire();
        Lease second = locks.read(name).acquire();
        CompletableFuture<Lease> writer = locks.acquireAsync(name);
        Until.holds(() -> waiters(name) == 1);
        assertNull(locks.read(name).tryAcquire());
        first.release();
        assertFalse(writer.isDone());
        second.release();
        writer.get(5, TimeUnit.SECONDS).release();
    }

    @Test
    void aSemaphoreHasSoManyHolders() throws Exception {
        NamedLock pool = locks.semaphore(name, 2);
        try (Lease first = pool.acquire();
                Lease second = pool.acquire()) {
            assertNull(pool.tryAcquire());
            assertTrue(first.fence() < second.fence());
        }
        locks.acquire(name).close();
    }

    @Test
    void aCutConnectionCostsNoLock() throws Exception {
        Lease lease = locks.acquire(name, ttl(900));
        CompletableFuture<Lease> waiting = locks.acquireAsync(name);
        Until.holds(() -> waiters(name) == 1);
        server.ask().clientKill(io.lettuce.core.KillArgs.Builder.skipme());
        long begun = System.nanoTime();
        Until.holds(() -> System.nanoTime() - begun > 1_500_000_000);
        assertTrue(lease.isHeld());
        lease.release();
        waiting.get(5, TimeUnit.SECONDS).release();
    }

    @Test
    void manyThreadsTakeTurns() throws Exception {
        AtomicInteger inside = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 16; i++) {
            Thread thread = new Thread(() -> {
                for (int round = 0; round < 50; round++) {
                    try (Lease lease = locks.acquire(name)) {
                        assertEquals(1, inside.incrementAndGet());
                        inside.decrementAndGet();
                        done.incrementAndGet();
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertEquals(800, done.get());
    }

    @Test
    void closeReleasesWhatIsHeldAndEndsWaits() throws Exception {
        Lease lease = locks.acquire(name);
        CompletableFuture<Lease> waiting = locks.acquireAsync(name);
        Until.holds(() -> waiters(name) == 1);
        assertEquals(List.of(), locks.closeAsync(Duration.ofSeconds(5)).get());
        assertEquals(Loss.CLOSED, lease.loss());
        Throwable error = assertThrows(java.util.concurrent.ExecutionException.class, waiting::get).getCause();
        assertTrue(error instanceof LeaseholdException.Closed);
        assertEquals(0, server.ask().exists(name));
        assertEquals(0, waiters(name));
        assertThrows(LeaseholdException.Closed.class, () -> locks.acquire(name));
    }

    @Test
    void theLockOfTheJdkIsReentrantAndRefusesConditions() throws Exception {
        Lock lock = locks.asLock(name);
        lock.lock();
        assertTrue(lock.tryLock());
        Lock other = locks.asLock(name);
        assertFalse(other.tryLock());
        assertFalse(other.tryLock(50, TimeUnit.MILLISECONDS));
        lock.unlock();
        assertFalse(other.tryLock());
        lock.unlock();
        assertTrue(other.tryLock(1, TimeUnit.SECONDS));
        other.unlock();
        assertThrows(IllegalMonitorStateException.class, other::unlock);
        assertThrows(UnsupportedOperationException.class, lock::newCondition);
    }

    @Test
    void aKeyThatIsNoLockIsRefused() {
        server.ask().lpush(name, "x");
        var error = assertThrows(LeaseholdException.Refused.class, () -> locks.acquire(name));
        assertEquals("WRONGTYPE", error.code());
    }
}
