package org.example.leasehold;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/** Where the servers are, and how to connect to them: what the client of the program knows. */
interface Connector {
    /** Blocks. */
    StatefulRedisConnection<byte[], byte[]> connect(String node);

    /** Blocks. */
    StatefulRedisPubSubConnection<byte[], byte[]> listen(String node);

    /** All keys are at one place, which has no name. */
    default boolean isSingle() {
        return true;
    }

    /** The node that has a slot, as far as is known. */
    default @Nullable String nodeOf(int slot) {
        return "";
    }

    /** Finds out which node has which slot. Blocks. */
    default void look() {}

    default void close() {}

    /** One server, or the primary that Sentinels name. */
    record Single(RedisClient client, @Nullable RedisURI uri) implements Connector {
        @Override
        public StatefulRedisConnection<byte[], byte[]> connect(String node) {
            return uri == null ? client.connect(ByteArrayCodec.INSTANCE) : client.connect(ByteArrayCodec.INSTANCE, uri);
        }

        @Override
        public StatefulRedisPubSubConnection<byte[], byte[]> listen(String node) {
            return uri == null ? client.connectPubSub(ByteArrayCodec.INSTANCE) : client.connectPubSub(ByteArrayCodec.INSTANCE, uri);
        }
    }

    /** The nodes of a cluster. */
    final class Cluster implements Connector {
        private final RedisClusterClient client;
        /** Connects to single nodes, by the resources and the options of the program's. */
        private final RedisClient nodes;

        private volatile boolean isKnown;

        Cluster(RedisClusterClient client) {
            this.client = client;
            this.nodes = RedisClient.create(client.getResources());
        }

        @Override
        public boolean isSingle() {
            return false;
        }

        @Override
        public @Nullable String nodeOf(int slot) {
            RedisClusterNode node = isKnown ? client.getPartitions().getPartitionBySlot(slot) : null;
            return node == null ? null : node.getUri().getHost() + ":" + node.getUri().getPort();
        }

        @Override
        public void look() {
            client.refreshPartitions();
            isKnown = true;
        }

        /** As those nodes are reached that are known. */
        private RedisURI uriOf(String node) {
            nodes.setOptions(client.getOptions());
            int colon = node.lastIndexOf(':');
            String host = node.substring(0, colon);
            int port = Integer.parseInt(node.substring(colon + 1));
            RedisClusterNode known = client.getPartitions().getPartition(host, port);
            RedisURI uri = RedisURI.builder((known != null ? known : client.getPartitions().getPartition(0)).getUri()).build();
            uri.setHost(host);
            uri.setPort(port);
            return uri;
        }

        @Override
        public StatefulRedisConnection<byte[], byte[]> connect(String node) {
            return nodes.connect(ByteArrayCodec.INSTANCE, uriOf(node));
        }

        @Override
        public StatefulRedisPubSubConnection<byte[], byte[]> listen(String node) {
            return nodes.connectPubSub(ByteArrayCodec.INSTANCE, uriOf(node));
        }

        @Override
        public void close() {
            nodes.shutdownAsync(0, 0, TimeUnit.SECONDS);
        }
    }
}
