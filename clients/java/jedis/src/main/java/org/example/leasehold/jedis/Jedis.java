package org.example.leasehold.jedis;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.example.leasehold.Connector;
import org.jspecify.annotations.Nullable;
import redis.clients.jedis.Connection;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.RedisSentinelClient;
import redis.clients.jedis.util.JedisClusterCRC16;
import redis.clients.jedis.util.Pool;

/** Servers that Jedis connects to. */
abstract class Jedis implements Connector {
    /** Makes connections to a server. They are not in the pool. */
    abstract Pool<Connection> poolOf(String place);

    private Connection open(String place) {
        try {
            Connection connection = poolOf(place).getFactory().makeObject().getObject();
            connection.setTimeoutInfinite();
            return connection;
        } catch (Exception e) {
            // Why there is no connection is not the cause of what Jedis throws.
            boolean hasReason = e.getCause() == null && e.getSuppressed().length > 0;
            Throwable told = hasReason ? new IllegalStateException(e.getMessage(), e.getSuppressed()[0]) : JedisWire.told(e);
            throw told instanceof RuntimeException known ? known : new IllegalStateException(told);
        }
    }

    @Override
    public Wire connect(String place) {
        return JedisWire.asking(open(place));
    }

    @Override
    public Wire listen(String place, byte[] channel, Consumer<byte[]> heard) {
        return JedisWire.listening(open(place), channel, heard);
    }

    /** One server. */
    static final class Single extends Jedis {
        private final RedisClient client;

        Single(RedisClient client) {
            this.client = client;
        }

        @Override
        Pool<Connection> poolOf(String place) {
            return client.getPool();
        }
    }

    /** The primary that Sentinels name. */
    static final class Watched extends Jedis {
        private final RedisSentinelClient client;

        Watched(RedisSentinelClient client) {
            this.client = client;
        }

        @Override
        public boolean isSingle() {
            return false;
        }

        @Override
        public boolean isWatched() {
            return true;
        }

        @Override
        public @Nullable String placeOf(int slot) {
            HostAndPort primary = client.getCurrentMaster();
            return primary == null ? null : primary.toString();
        }

        @Override
        Pool<Connection> poolOf(String place) {
            return found(client.getPrimaryNodesConnectionMap(), place);
        }
    }

    /** The nodes of a cluster. */
    static final class Cluster extends Jedis {
        private final RedisClusterClient client;
        private final Map<Integer, String> places = new ConcurrentHashMap<>();

        Cluster(RedisClusterClient client) {
            this.client = client;
        }

        @Override
        public boolean isSingle() {
            return false;
        }

        @Override
        public int slotOf(byte[] key) {
            return JedisClusterCRC16.getSlot(key);
        }

        @Override
        public @Nullable String placeOf(int slot) {
            return places.get(slot);
        }

        /** Jedis tells of one slot at a time. Those that are not wanted now are asked for when they are. */
        @Override
        public void look(List<byte[]> keys) {
            client.refreshClusterTopology();
            places.clear();
            for (byte[] key : keys) {
                places.computeIfAbsent(slotOf(key), slot -> {
                    try (Connection borrowed = client.getConnectionFromSlot(slot)) {
                        return borrowed.getHostAndPort().toString();
                    }
                });
            }
        }

        @Override
        Pool<Connection> poolOf(String place) {
            return found(client.getClusterNodes(), place);
        }
    }

    private static Pool<Connection> found(Map<?, ? extends Pool<Connection>> pools, String place) {
        for (Map.Entry<?, ? extends Pool<Connection>> each : pools.entrySet()) {
            if (each.getKey().toString().equals(place)) {
                return each.getValue();
            }
        }
        throw new IllegalStateException("Jedis does not know the server " + place);
    }
}
