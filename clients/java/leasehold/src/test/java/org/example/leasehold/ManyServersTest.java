package org.example.leasehold;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.AclCategory;
import io.lettuce.core.AclSetuserArgs;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.example.leasehold.testkit.Proxy;
import org.example.leasehold.testkit.Server;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Assumptions;
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
    void anAddressThatLeadsToAnotherServerByThenDoesNotCountTwice() throws Exception {
        try (Server a = Server.withModule();
                Server b = Server.withModule();
                Server c = Server.withModule();
                Proxy third = new Proxy(c.port);
                RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", third.port()));
                Leasehold locks = Leasehold.quorum(List.of(a.client, b.client, client), Settings.defaults())) {
            locks.acquire("x").release();
            third.leadsTo(b.port);
            c.kill();
            a.kill();
            // One server would be two of three.
            Options patient = Options.none().patience(Duration.ofSeconds(20));
            assertEquals("QUORUM", assertThrows(LeaseholdException.Refused.class, () -> locks.acquire("x", patient)).code());
            Until.holds(() -> b.ask().exists("x") == 0);
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

    private static void staysHeld(Lease lease) throws Exception {
        long begun = System.nanoTime();
        Until.holds(() -> System.nanoTime() - begun > 3_000_000_000L);
        assertTrue(lease.isHeld());
        assertEquals(Outcome.RELEASED, lease.release());
    }

    @Test
    void whatAServerHasGrantedByOneAddressIsNotTakenBackByAnother() throws Exception {
        try (Server a = Server.withModule();
                Server b = Server.withModule();
                Proxy toB = new Proxy(b.port);
                RedisClient client = RedisClient.create(RedisURI.create("127.0.0.1", toB.port()));
                Leasehold locks = Leasehold.quorum(List.of(a.client, b.client, client), Settings.defaults())) {
            locks.acquire("x").release();
            toB.forgetsAnswers();
            staysHeld(locks.acquire("x", Options.none().ttl(Duration.ofSeconds(2)).patience(Duration.ofSeconds(20))));
        }
    }

    @Test
    void aQuorumOutlivesConnectionsThatAreDeadWithoutHavingSaidSo() throws Exception {
        try (Server a = Server.withModule();
                Server b = Server.withModule();
                Proxy toA = new Proxy(a.port);
                Proxy toB = new Proxy(b.port)) {
            List<RedisClient> clients = Stream.of(toA, toB)
                    .map(proxy -> RedisClient.create(RedisURI.create("127.0.0.1", proxy.port())))
                    .toList();
            try (Leasehold locks = Leasehold.quorum(clients, Settings.defaults())) {
                Lease lease = locks.acquire("x", Options.none().ttl(Duration.ofSeconds(2)).patience(Duration.ofSeconds(20)));
                toA.forgetsAll();
                toB.forgetsAll();
                staysHeld(lease);
            } finally {
                clients.forEach(client -> client.shutdown(0, 1, TimeUnit.SECONDS));
            }
        }
    }

    @Test
    void aPrimaryThatSentinelsReplaceIsLeftThoughItGrantsOn() throws Exception {
        try (Server former = Server.withModule();
                Server next = Server.withModule();
                Server.Sentinel sentinel = former.sentinel();
                RedisClient client = RedisClient.create()) {
            RedisURI uri = RedisURI.builder().withSentinel("127.0.0.1", sentinel.port()).withSentinelMasterId("primary").build();
            next.ask().replicaof("127.0.0.1", former.port);
            Settings settings = Settings.defaults().ttl(Duration.ofSeconds(3)).slice(Duration.ofSeconds(60));
            try (Leasehold locks = Leasehold.over(client, uri, settings);
                    Lease lease = locks.acquire("x")) {
                CompletableFuture<Lease> waiting = locks.write("x").acquireAsync(Options.none().ttl(Duration.ofSeconds(30)));
                Until.holds(() -> next.ask().get("x") != null && waiters(former, "x") == 1);
                next.ask().replicaofNoOne();
                sentinel.names(next);
                Until.holds(() -> waiters(next, "x") == 1 && waiters(former, "x") == 0);
                Until.holds(() -> former.ask().exists("x") == 0);
                assertTrue(lease.isHeld());
                assertEquals(Outcome.RELEASED, lease.release());
                assertEquals(next.ask().get("x"), waiting.get().fence() + ":" + waiting.get().owner());
            }
        }
    }

    @Test
    void aPrimaryThatHasBecomeAReplicaIsLeftAtOnce() throws Exception {
        try (Server former = Server.withModule();
                Server next = Server.withModule();
                Server.Sentinel sentinel = former.sentinel()) {
            RedisURI uri = RedisURI.builder().withSentinel("127.0.0.1", sentinel.port()).withSentinelMasterId("primary").build();
            try (RedisClient client = RedisClient.create(uri);
                    Leasehold locks = Leasehold.over(client)) {
                locks.acquire("x").release();
                sentinel.names(next);
                former.ask().replicaof("127.0.0.1", next.port);
                try (Lease lease = locks.tryAcquire("x")) {
                    assertEquals(lease.fence() + ":" + lease.owner(), next.ask().get("x"));
                }
            }
        }
    }

    private static int waiters(Server server, String name) {
        try (Leasehold locks = Leasehold.over(server.client)) {
            return locks.waitersAsync(name).join().size();
        }
    }

    /** Two nodes that ask for a password. */
    private static RedisURI meet(Server one, Server other) {
        one.ask().clusterMeet("127.0.0.1", other.port);
        Until.holds(() -> one.ask().clusterInfo().contains("cluster_state:ok") && other.ask().clusterInfo().contains("cluster_state:ok"));
        for (Server each : List.of(one, other)) {
            each.ask().aclSetuser("worker", AclSetuserArgs.Builder.on().addPassword("secret").allKeys().allCommands());
            each.ask().configSet("requirepass", "another");
        }
        return RedisURI.builder(one.uri).withAuthentication("worker", "secret").build();
    }

    @Test
    void allNodesAreReachedAsTheClientReachesThem() throws Exception {
        try (Server one = Server.plainCluster(0, 8_191);
                Server other = Server.plainCluster(8_192, 16_383);
                RedisClusterClient client = RedisClusterClient.create(meet(one, other));
                Leasehold locks = Leasehold.over(client, Settings.defaults())) {
            for (String name : List.of("a", "b")) {
                assertEquals(Outcome.RELEASED, locks.acquire(name).release());
            }
            assertTrue(SlotHash.getSlot("a") > 8_191 && SlotHash.getSlot("b") < 8_192);
        }
    }

    @Test
    void whoMayRunNoScriptsOnOneServerMayRunThemOnAnother() throws Exception {
        try (Server one = Server.plainCluster(0, 8_191);
                Server other = Server.plainCluster(8_192, 16_383)) {
            boolean knowsIfeq = one.ask().info("server").matches("(?s).*(valkey_version:|redis_version:8\\.[4-9]).*");
            Assumptions.assumeTrue(knowsIfeq, "SET … IFEQ came with Redis 8.4 and Valkey 8.1");
            RedisURI uri = meet(one, other);
            one.ask().aclSetuser("worker", AclSetuserArgs.Builder.removeCategory(AclCategory.SCRIPTING));
            try (RedisClusterClient client = RedisClusterClient.create(uri);
                    Leasehold locks = Leasehold.over(client, Settings.defaults())) {
                locks.acquire("b").release();
                locks.acquire("a").release();
                assertFalse(one.ask().info("commandstats").matches("(?s).*cmdstat_eval:calls=[1-9].*"));
                assertTrue(other.ask().info("commandstats").contains("cmdstat_eval:"));
            }
        }
    }
}
