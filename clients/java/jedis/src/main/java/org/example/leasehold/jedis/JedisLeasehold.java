package org.example.leasehold.jedis;

import java.util.List;
import org.example.leasehold.Leasehold;
import org.example.leasehold.Settings;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;

/**
 * Locks on the servers of a client of Jedis.
 *
 * <pre>{@code
 * try (Leasehold locks = JedisLeasehold.over(RedisClient.create("127.0.0.1", 6379), Settings.defaults());
 *         Lease lease = locks.acquire("printer")) {
 *     lease.onLost(lost -> printer.stop());
 *     printer.print(page, lease.fence());
 * }
 * }</pre>
 *
 * <p>The connections are made as the client makes its own, and take none from its pool. Clients stay open when the locks are
 * closed.
 */
public final class JedisLeasehold {
    private JedisLeasehold() {}

    /**
     * Returns locks on the server of a client.
     *
     * @param client has a pool
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClient client, Settings settings) {
        return Leasehold.by(new Jedis.Single(client), settings);
    }

    /**
     * Returns locks on the primary that Sentinels name. The client listens to them.
     *
     * @param client the client
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisSentinelClient client, Settings settings) {
        return Leasehold.by(new Jedis.Watched(client), settings);
    }

    /**
     * Returns locks in a cluster. Each is on the node that has its slot, and goes along when the slot moves.
     *
     * @param client the client
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold over(RedisClusterClient client, Settings settings) {
        return Leasehold.by(new Jedis.Cluster(client), settings);
    }

    /**
     * Returns locks on most of several independent servers: see {@link Leasehold#quorum}.
     *
     * @param clients one for each server
     * @param settings the settings
     * @return the locks
     */
    public static Leasehold quorum(List<RedisClient> clients, Settings settings) {
        return Leasehold.quorumBy(clients.stream().map(Jedis.Single::new).toList(), settings);
    }
}
