package org.example.leasehold.jedis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.example.leasehold.Options;
import org.example.leasehold.Outcome;
import org.example.leasehold.Settings;
import org.example.leasehold.testkit.Proxy;
import org.example.leasehold.testkit.Server;
import org.example.leasehold.testkit.Until;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;

/** What only Jedis does otherwise: all the rest is shown by the scenarios that all clients pass. */
@Timeout(60)
class JedisLeaseholdTest {
    private static void takeTurns(Leasehold locks) throws Exception {
        Lease lease = locks.acquire("x");
        assertNull(locks.tryAcquire("x"));
        CompletableFuture<Lease> waiting = locks.acquireAsync("x");
        Until.holds(() -> locks.waitersAsync("x").join().size() == 1);
        lease.release();
        assertEquals(Outcome.RELEASED, waiting.get(10, TimeUnit.SECONDS).release());
        assertNull(locks.info("x"));
    }

    @Test
    void aPoolThatIsUsedUpKeepsNobodyFromLocks() throws Exception {
        try (Server server = Server.withModule();
                RedisClient client = RedisClient.create("127.0.0.1", server.port)) {
            client.getPool().setMaxTotal(1);
            try (var borrowed = client.getPool().getResource();
                    Leasehold locks = JedisLeasehold.over(client, Settings.defaults())) {
                takeTurns(locks);
                assertEquals(1, client.getPool().getNumActive());
            }
            assertEquals("PONG", client.ping());
        }
    }

    @Test
    void anAddressThatLeadsToAnotherServerByThenDoesNotCountTwice() throws Exception {
        try (Server a = Server.withModule();
                Server b = Server.withModule();
                Server c = Server.withModule();
                Proxy third = new Proxy(c.port);
                RedisClient toA = RedisClient.create("127.0.0.1", a.port);
                RedisClient toB = RedisClient.create("127.0.0.1", b.port);
                RedisClient toThird = RedisClient.create("127.0.0.1", third.port());
                Leasehold locks = JedisLeasehold.quorum(List.of(toA, toB, toThird), Settings.defaults())) {
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
    void aClusterAndSentinelsAreAskedWhereALockIs() throws Exception {
        try (Server node = Server.cluster();
                RedisClusterClient client = RedisClusterClient.create(Set.of(new HostAndPort("127.0.0.1", node.port)));
                Leasehold locks = JedisLeasehold.over(client, Settings.defaults())) {
            takeTurns(locks);
        }
        try (Server server = Server.withModule();
                Server.Sentinel sentinel = server.sentinel();
                RedisSentinelClient client = RedisSentinelClient.builder()
                        .masterName("primary")
                        .sentinels(Set.of(new HostAndPort("127.0.0.1", sentinel.port())))
                        .build();
                Leasehold locks = JedisLeasehold.over(client, Settings.defaults())) {
            takeTurns(locks);
        }
    }
}
