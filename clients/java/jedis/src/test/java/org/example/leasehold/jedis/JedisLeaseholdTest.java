package org.example.leasehold.jedis;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.Outcome;
import org.example.leasehold.Settings;
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
