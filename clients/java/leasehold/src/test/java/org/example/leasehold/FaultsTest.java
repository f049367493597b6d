package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.KillArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.example.leasehold.testkit.Proxy;
import org.example.leasehold.testkit.Server;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Answers that do not come, or come from somebody else. */
class FaultsTest extends ModuleTest {
    private Leasehold impatient;

    @BeforeEach
    void openImpatient() {
        impatient = Leasehold.over(server.client, Settings.defaults().within(Duration.ofMillis(300)));
    }

    @AfterEach
    void closeImpatient() {
        server.signal("CONT");
        impatient.close();
    }

    private interface Work {
        void run() throws Exception;
    }

    /** The server carries it out, and its answer comes too late. */
    private void unanswered(Work work) {
        server.signal("STOP");
        assertThrows(LeaseholdException.Unreachable.class, work::run);
        server.signal("CONT");
    }

    private static long calls(String command) {
        return Arrays.stream(server.ask().info("commandstats").split("\r\n"))
                .filter(line -> line.startsWith("cmdstat_" + command + ":"))
                .mapToLong(line -> Long.parseLong(line.split("calls=")[1].split(",")[0]))
                .findFirst()
                .orElse(0);
    }

    @Test
    void anAdoptedReaderDoesNotWriteBesideOthers() throws Exception {
        Lease reader = locks.read(name).acquire();
        Lease other = locks.read(name).acquire();
        Lease adopted = locks.adopt(reader.detach());
        assertFalse(adopted.upgrade());
        other.release();
        assertTrue(adopted.upgrade());
        assertEquals(Outcome.RELEASED, adopted.release());
    }

    @Test
    void whoMayHaveLetOthersInIsNotAloneBefore() throws Exception {
        Lease writer = impatient.acquire(name);
        unanswered(writer::downgrade);
        Lease reader = locks.read(name).acquire();
        assertFalse(writer.upgrade());
        reader.release();
        assertTrue(writer.upgrade());
        assertEquals(Outcome.RELEASED, writer.release());
    }

    @Test
    void anUpgradeThatWasNotAnsweredIsNoLoss() throws Exception {
        Lease lease = impatient.read(name).acquire();
        long fence = lease.fence();
        unanswered(lease::upgrade);
        Until.holds(() -> !server.ask().get(name).startsWith(fence + ":"));
        assertEquals("OK", lease.guard("SET", "data:" + name, 1));
        assertTrue(lease.fence() > fence);
        assertTrue(lease.isHeld());
        assertEquals(Outcome.RELEASED, lease.release());
        assertEquals(0, server.ask().exists(name));
    }

    @Test
    void whoMayBeAloneLetsOthersIn() throws Exception {
        Lease lease = impatient.read(name).acquire();
        long fence = lease.fence();
        unanswered(lease::upgrade);
        Until.holds(() -> !server.ask().get(name).startsWith(fence + ":"));
        lease.downgrade();
        Lease other = locks.read(name).tryAcquire();
        assertNotNull(other);
        other.release();
        assertEquals(Outcome.RELEASED, lease.release());
    }

    @Test
    void aFormerServerIsNotBelieved() throws Exception {
        try (Server next = Server.withModule();
                Proxy proxy = new Proxy(server.uri.getPort());
                Leasehold nextLocks = Leasehold.over(next.client)) {
            RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", proxy.port()));
            try (Leasehold moving = Leasehold.over(client)) {
                Lease former = locks.acquire(name);
                Lease holder = nextLocks.acquire(name);
                CompletableFuture<Lease> waiting = moving.acquireAsync(name);
                Until.holds(() -> !server.ask().pubsubChannels().isEmpty() && locks.waitersAsync(name).join().size() == 1);
                proxy.leadsTo(next.uri.getPort());
                server.ask().clientKill(KillArgs.Builder.typeNormal().skipme(true));
                Until.holds(() -> nextLocks.waitersAsync(name).join().size() == 1);
                Until.holds(() -> server.ask().pubsubChannels().isEmpty());
                former.release();
                Until.holds(() -> !next.ask().pubsubChannels().isEmpty());
                assertFalse(waiting.isDone());
                holder.release();
                Lease lease = waiting.get(10, TimeUnit.SECONDS);
                assertEquals(lease.fence() + ":" + lease.owner(), next.ask().get(name));
                lease.release();
            } finally {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void aConnectionThatIsDeadWithoutHavingSaidSoCostsNoLock() throws Exception {
        try (Proxy proxy = new Proxy(server.uri.getPort())) {
            RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", proxy.port()));
            // Shorter than an answer may take.
            Settings settings = Settings.defaults().within(Duration.ofMillis(300));
            try (Leasehold behind = Leasehold.over(client, settings)) {
                behind.acquire(name).release();
                proxy.forgetsAll();
                Until.holds(() -> {
                    try (Lease lease = behind.tryAcquire(name)) {
                        return lease != null;
                    } catch (LeaseholdException.Unreachable e) {
                        return false;
                    } catch (InterruptedException e) {
                        throw new AssertionError(e);
                    }
                });
            } finally {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        }
    }

    @Test
    void aReleaseOfAnEarlierRequestDoesNotHitALaterGrantOfItsOwner() throws Exception {
        Options options = Options.none().owner("one").ephemeral(Duration.ofSeconds(5));
        Lease holder = locks.acquire(name);
        assertThrows(LeaseholdException.Busy.class, () -> locks.acquire(name, options.patience(Duration.ofMillis(50))));
        holder.release();
        Lease lease = locks.acquire(name, options);
        long granted = System.nanoTime();
        Until.holds(() -> System.nanoTime() - granted > 500_000_000);
        assertEquals(lease.fence() + ":one", server.ask().get(name));
        assertEquals(Outcome.RELEASED, lease.release());
    }

    @Test
    void aHoldIsBoundAnewWhenItsConnectionIsPutAside() throws Exception {
        Settings settings = Settings.defaults().response(Duration.ofMillis(100));
        try (Leasehold bound = Leasehold.over(server.client, settings)) {
            long before = calls("lock.acquire");
            Lease lease = bound.acquire(name, Options.none().ephemeral(Duration.ZERO));
            long line = Arrays.stream(server.ask().clientList().split("\n"))
                    .filter(each -> each.contains("cmd=lock.acquire"))
                    .mapToLong(each -> Long.parseLong(each.split("[= ]")[1]))
                    .max()
                    .orElseThrow();
            server.signal("STOP");
            CompletableFuture<LockInfo> info = bound.infoAsync(name);
            long begun = System.nanoTime();
            Until.holds(() -> System.nanoTime() - begun > 300_000_000);
            server.signal("CONT");
            info.get(10, TimeUnit.SECONDS);
            Until.holds(() -> calls("lock.acquire") - before >= 2);
            server.ask().clientKill(KillArgs.Builder.id(line));
            lease.extend(Duration.ofSeconds(30));
            assertEquals(lease.fence() + ":" + lease.owner(), server.ask().get(name));
            assertEquals(Outcome.RELEASED, lease.release());
        }
    }

    @Test
    void anAdoptionThatNobodyWaitsForEndsWithItsLease() throws Exception {
        Settings settings = Settings.defaults().ttl(Duration.ofMillis(900));
        try (Leasehold others = Leasehold.over(server.client, settings)) {
            Detached detached = locks.acquire(name).detach();
            Detached cancelled = locks.acquire(name + "2").detach();
            server.signal("STOP");
            CompletableFuture<Throwable> came = new CompletableFuture<>();
            Thread thread = new Thread(() -> came.complete(assertThrows(InterruptedException.class, () -> others.adopt(detached))));
            thread.start();
            Until.holds(() -> thread.getState() == Thread.State.WAITING);
            thread.interrupt();
            came.get(10, TimeUnit.SECONDS);
            others.adoptAsync(cancelled).cancel(true);
            server.signal("CONT");
            Until.holds(() -> server.ask().exists(name, name + "2") == 0);
        }
    }

    @Test
    void whoRestsBetweenTriesEndsWithTheClient() throws Exception {
        try (Server gone = Server.withModule()) {
            Leasehold idle = Leasehold.over(gone.client);
            idle.acquire(name).release();
            gone.kill();
            List<CompletableFuture<LockInfo>> all = Stream.generate(() -> idle.infoAsync(name)).limit(20).toList();
            long begun = System.nanoTime();
            Until.holds(() -> System.nanoTime() - begun > 300_000_000);
            idle.closeAsync(Duration.ZERO).get(10, TimeUnit.SECONDS);
            for (CompletableFuture<LockInfo> each : all) {
                assertThrows(ExecutionException.class, () -> each.get(10, TimeUnit.SECONDS));
            }
        }
    }

    @Test
    void whateverAListenerThrowsALeaseIsHandedOut() throws Exception {
        Settings settings = Settings.defaults().onEvent(event -> {
            throw new AssertionError("a listener fails");
        });
        try (Leasehold told = Leasehold.over(server.client, settings)) {
            told.acquireAsync(name).get(10, TimeUnit.SECONDS).release();
            assertEquals(List.of(), told.closeAsync(Duration.ofSeconds(1)).get());
        }
    }

    @Test
    void aConfirmedGrantKeepsTheSubscription() throws Exception {
        Options confirm = Options.none().confirm(true);
        Lease holder = locks.acquire(name);
        for (int round = 0; round < 3; round++) {
            CompletableFuture<Lease> waiting = locks.write(name).acquireAsync(confirm);
            Until.holds(() -> locks.waitersAsync(name).join().size() == 1 && !server.ask().pubsubChannels().isEmpty());
            holder.release();
            holder = waiting.get(10, TimeUnit.SECONDS);
            // The first one may have been asked for before there was a subscription.
            if (round == 0) {
                server.ask().configResetstat();
            }
        }
        assertEquals(0, calls("subscribe"));
        holder.release();
    }

    @Test
    void aFutureThatTheProgramCompletesLeavesTheQueue() throws Exception {
        try (Lease holder = locks.acquire(name)) {
            CompletableFuture<Lease> waiting = locks.acquireAsync(name);
            Until.holds(() -> locks.waitersAsync(name).join().size() == 1);
            waiting.complete(null);
            Until.holds(() -> locks.waitersAsync(name).join().isEmpty());
            assertTrue(holder.isHeld());
        }
    }
}
