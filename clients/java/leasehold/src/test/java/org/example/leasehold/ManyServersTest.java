package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.testkit.Server;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Quorums and clusters. */
@Timeout(60)
class ManyServersTest {
    @Test
    void aQuorumHasOneFenceAndOutlivesAServer() throws Exception {
        try (Server a = Server.withModule();
                Server b = Server.withModule();
                Server c = Server.plain()) {
            List<RedisClient> clients = List.of(a.client, b.client, c.client);
            try (Leasehold locks = Leasehold.quorum(clients, Settings.defaults())) {
                Lease lease = locks.acquire("x", Options.none().patience(Duration.ofSeconds(20)));
                for (Server each : List.of(a, b, c)) {
                    String held = each.ask().get("x");
                    assertTrue(held == null || held.equals(lease.fence() + ":" + lease.owner()), held);
                }
                assertNull(locks.tryAcquire("x"));
                lease.extend(Duration.ofSeconds(60));
                c.kill();
                assertEquals(Outcome.RELEASED, lease.release());
                Lease next = locks.acquire("x", Options.none().patience(Duration.ofSeconds(20)));
                assertTrue(next.fence() > lease.fence());
                assertThrows(IllegalArgumentException.class, () -> locks.read("x"));
                assertThrows(IllegalArgumentException.class, () -> next.guard("PING"));
            }
        }
    }

    @Test
    void aServerThatIsNamedTwiceIsNoQuorum() {
        try (Server a = Server.plain();
                Leasehold locks = Leasehold.quorum(List.of(a.client, a.client, a.client), Settings.defaults())) {
            assertEquals("QUORUM", assertThrows(LeaseholdException.Refused.class, () -> locks.tryAcquire("x")).code());
        }
    }

    @Test
    void aLockOfAClusterIsWaitedForAtItsNode() throws Exception {
        try (Server node = Server.cluster()) {
            RedisClusterClient client = RedisClusterClient.create(node.uri);
            try (Leasehold locks = Leasehold.over(client, Settings.defaults())) {
                Lease lease = locks.acquire("x");
                CompletableFuture<Lease> waiting = locks.acquireAsync("x");
                Until.holds(() -> locks.waitersAsync("x").join().size() == 1);
                lease.release();
                assertEquals(Outcome.RELEASED, waiting.get(10, TimeUnit.SECONDS).release());
            } finally {
                client.shutdown(0, 1, TimeUnit.SECONDS);
            }
        }
    }
}
