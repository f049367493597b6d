package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.testkit.Server;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Locks on a server without the module. */
@Timeout(60)
class PlainTest {
    @Test
    void scriptsDoWhatTheModuleDoes() throws Exception {
        try (Server server = Server.plain();
                Leasehold locks = Leasehold.over(server.client)) {
            long first;
            try (Lease lease = locks.acquire("x", Options.none().ttl(Duration.ofMillis(600)))) {
                first = lease.fence();
                assertNull(locks.tryAcquire("x"));
                CompletableFuture<Lease> waiting = locks.acquireAsync("x");
                long begun = System.nanoTime();
                Until.holds(() -> System.nanoTime() - begun > 1_000_000_000);
                assertTrue(lease.isHeld());
                assertEquals(Outcome.RELEASED, lease.release());
                Lease second = waiting.get(5, TimeUnit.SECONDS);
                assertTrue(second.fence() > first);
                second.release();
            }
            assertNull(server.ask().get("x"));
            var error = assertThrows(LeaseholdException.Refused.class, () -> locks.read("x").acquire());
            assertEquals("MODULE", error.code());
        }
    }

    @Test
    void aServerThatIsDownIsUnreachable() {
        Server server = Server.plain();
        try (Leasehold locks = Leasehold.over(server.client, Settings.defaults().within(Duration.ofMillis(300)))) {
            server.kill();
            assertThrows(LeaseholdException.Unreachable.class, () -> locks.tryAcquire("x"));
        } finally {
            server.close();
        }
    }

    @Test
    void whatASilentServerHasNotReadYetLeavesNoLock() throws Exception {
        try (Server server = Server.plain()) {
            Settings settings = Settings.defaults().response(Duration.ofMillis(100)).within(Duration.ofMillis(300));
            try (Leasehold locks = Leasehold.over(server.client, settings)) {
                locks.acquire("x").release();
                server.signal("STOP");
                assertThrows(LeaseholdException.Unreachable.class, () -> locks.tryAcquire("x"));
                locks.closeAsync(Duration.ZERO).get();
            }
            server.signal("CONT");
            Until.holds(() -> server.ask().info("commandstats").contains("cmdstat_evalsha:"));
            Until.holds(() -> server.ask().exists("x") == 0);
        }
    }
}
