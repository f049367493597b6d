package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.KillArgs;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.Lock;
import java.util.concurrent.locks.ReadWriteLock;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Test;

/** What locks can do beside being held, on a server with the module. */
class FeaturesTest extends ModuleTest {
    private final List<LockEvent.Step> steps = Collections.synchronizedList(new ArrayList<>());

    @Override
    Settings settings() {
        return Settings.defaults().onEvent(event -> steps.add(event.step()));
    }

    private static void elsewhere(Runnable work) throws Exception {
        CompletableFuture.runAsync(work).get(10, TimeUnit.SECONDS);
    }

    @Test
    void readersAreTogetherAndAWriterThatReadsLetsThemIn() throws Exception {
        ReadWriteLock both = locks.asReadWriteLock(name);
        Lock read = both.readLock();
        Lock write = both.writeLock();
        read.lock();
        read.lock();
        assertFalse(write.tryLock());
        assertThrows(IllegalMonitorStateException.class, write::lock);
        elsewhere(() -> {
            assertTrue(read.tryLock());
            read.unlock();
            assertFalse(write.tryLock());
        });
        read.unlock();
        read.unlock();
        assertThrows(IllegalMonitorStateException.class, read::unlock);
        write.lock();
        read.lock();
        elsewhere(() -> assertFalse(read.tryLock()));
        write.unlock();
        elsewhere(() -> {
            assertTrue(read.tryLock());
            read.unlock();
        });
        assertEquals(1, locks.holdersAsync(name).get().size());
        read.unlock();
        assertNull(locks.info(name));
        assertThrows(UnsupportedOperationException.class, write::newCondition);
    }

    @Test
    void aReaderThatIsAloneBecomesAWriterByANewFence() throws Exception {
        Lease lease = locks.read(name).acquire();
        Lease other = locks.read(name).acquire();
        long fence = lease.fence();
        assertFalse(lease.upgrade());
        assertEquals(fence, lease.fence());
        other.release();
        assertTrue(lease.upgrade());
        assertTrue(lease.fence() > fence);
        lease.downgrade();
        assertNotNull(locks.read(name).tryAcquire());
        assertEquals(Outcome.RELEASED, lease.release());
    }

    @Test
    void aLockIsHandedOnByText() throws Exception {
        Lease lease = locks.acquire(name, Options.none().owner("a:b%c"));
        Detached detached = lease.detach();
        assertEquals(Loss.RELEASED, lease.loss());
        assertEquals(Outcome.LATER, lease.release());
        assertEquals(detached, Detached.parse(detached.toString()));
        try (Leasehold others = Leasehold.over(server.client)) {
            Lease adopted = others.adopt(Detached.parse(detached.toString()));
            assertEquals("a:b%c", adopted.owner());
            assertEquals(lease.fence(), adopted.fence());
            assertEquals(Outcome.RELEASED, adopted.release());
            assertThrows(LeaseholdException.Lost.class, () -> others.adopt(detached));
        }
        assertThrows(IllegalArgumentException.class, () -> Detached.parse("leasehold:x:%zz:7"));
    }

    @Test
    void aGuardedCommandIsRunForTheHolderAlone() throws Exception {
        Lease lease = locks.acquire(name);
        assertEquals("OK", lease.guard("SET", "data", 17));
        assertEquals(18L, lease.guard("INCR", "data"));
        assertEquals(List.of("18"), lease.guard("MGET", "data"));
        assertNull(lease.guard("GET", "none"));
        assertEquals("ERR", assertThrows(LeaseholdException.Refused.class, () -> lease.guard("NO.SUCH")).code());
        assertTrue(lease.isHeld());
        server.ask().del(name);
        assertThrows(LeaseholdException.Lost.class, () -> lease.guard("SET", "data", 1));
        assertEquals(Loss.TAKEN, lease.loss());
        assertEquals("18", server.ask().get("data"));
        assertThrows(IllegalArgumentException.class, lease::guard);
    }

    @Test
    void anEphemeralLockIsBoundAgainWhenItsConnectionIsLost() throws Exception {
        Lease lease = locks.acquire(name, Options.none().ephemeral(Duration.ofSeconds(5)));
        server.ask().clientKill(KillArgs.Builder.typeNormal().skipme(true));
        // Within the grace its lease is short.
        Until.holds(() -> lease.validFor().toSeconds() > 20);
        assertEquals(lease.fence() + ":" + lease.owner(), server.ask().get(name));
        assertEquals(Outcome.RELEASED, lease.release());
    }

    @Test
    void aGrantThatTooFewReplicasKnowIsGivenBack() throws Exception {
        Options options = Options.none().replicas(1, Duration.ofMillis(50));
        assertThrows(LeaseholdException.TooFewReplicas.class, () -> locks.acquire(name, options));
        Until.holds(() -> server.ask().get(name) == null);
    }

    @Test
    void anElectionTellsOfEachLeader() throws Exception {
        List<String> told = Collections.synchronizedList(new ArrayList<>());
        Election election = locks.election(name, "host/1");
        CompletableFuture<Void> observing = election.observe(leader -> told.add(leader == null ? "nobody" : leader.candidate()));
        Until.holds(() -> told.size() == 1);
        Lease term = election.campaign(Options.none());
        assertEquals(new Election.Leader("host/1", term.fence()), election.leader());
        Until.holds(() -> told.size() == 2);
        term.release();
        Until.holds(() -> told.size() == 3);
        assertEquals(List.of("nobody", "host/1", "nobody"), told);
        observing.cancel(true);
    }

    @Test
    void theServerTellsWhoHoldsAndWhoWaits() throws Exception {
        Lease lease = locks.acquire(name);
        CompletableFuture<Lease> waiting = locks.acquireAsync(name);
        Until.holds(() -> locks.waitersAsync(name).join().size() == 1);
        LockInfo info = locks.info(name);
        assertNotNull(info);
        assertEquals(lease.owner(), info.oldest().owner());
        assertEquals(lease.fence(), locks.holders(name).get(0).fence());
        assertEquals(1, info.waiters());
        assertEquals(1, locks.waiters(name).size());
        assertTrue(locks.top(99, "").stream().anyMatch(each -> each.name().equals(name)));
        server.ask().del(name);
        waiting.get(10, TimeUnit.SECONDS).release();
        assertEquals(Outcome.LATE, lease.release());
        assertTrue(locks.log(99, "").stream().anyMatch(each -> each.name().equals(name)));
    }

    @Test
    void eachStepIsTold() throws Exception {
        Lease lease = locks.acquire(name);
        lease.extendBy(Duration.ofSeconds(5));
        assertTrue(lease.validFor().toSeconds() >= 33);
        lease.release();
        Until.holds(() -> steps.size() == 4);
        assertEquals(List.of(LockEvent.Step.ASKED, LockEvent.Step.GRANTED, LockEvent.Step.RENEWED, LockEvent.Step.RELEASED), steps);
    }

    @Test
    void whatMakesNoSenseIsRefusedWithItsBound() {
        for (Runnable each : List.<Runnable>of(
                () -> locks.semaphore("x", 100_000),
                () -> Settings.defaults().waitConnections(0),
                () -> Options.none().replicas(0, Duration.ofSeconds(1)),
                () -> Options.none().ttl(Duration.ofMillis(2)))) {
            String text = assertThrows(IllegalArgumentException.class, each::run).getMessage();
            assertTrue(text.contains("must be at least"), text);
        }
    }
}
