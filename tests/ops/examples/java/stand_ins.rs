//! As much of the client libraries for Java as the recipes use, without a body: for the compiler.

/// The name of a class, and what it is.
pub(super) type Class = (&'static str, &'static str);

pub(super) const JEDIS: &[Class] = &[
    (
        "org.apache.commons.pool2.impl.GenericObjectPoolConfig",
        "class GenericObjectPoolConfig<T> { public void setMaxTotal(int most) {} }",
    ),
    (
        "redis.clients.jedis.CommandArguments",
        "class CommandArguments {
            public CommandArguments(redis.clients.jedis.commands.ProtocolCommand command) {}
            public CommandArguments add(Object word) { return this; }
            public CommandArguments addObjects(Object... words) { return this; }
        }",
    ),
    (
        "redis.clients.jedis.Connection",
        "class Connection implements java.io.Closeable {
            public Connection(HostAndPort address, JedisClientConfig config) {}
            public void setSoTimeout(int limit) {}
            public Object executeCommand(CommandArguments words) { return null; }
            public void close() {}
        }",
    ),
    (
        "redis.clients.jedis.ConnectionPoolConfig",
        "class ConnectionPoolConfig extends org.apache.commons.pool2.impl.GenericObjectPoolConfig<Connection> {}",
    ),
    (
        "redis.clients.jedis.DefaultJedisClientConfig",
        "class DefaultJedisClientConfig implements JedisClientConfig {
            public static Builder builder() { return null; }
            public static class Builder {
                public Builder timeoutMillis(int limit) { return this; }
                public DefaultJedisClientConfig build() { return null; }
            }
        }",
    ),
    ("redis.clients.jedis.HostAndPort", "class HostAndPort { public HostAndPort(String host, int port) {} }"),
    ("redis.clients.jedis.JedisClientConfig", "interface JedisClientConfig {}"),
    (
        "redis.clients.jedis.JedisCluster",
        "class JedisCluster extends UnifiedJedis {
            public JedisCluster(java.util.Set<HostAndPort> nodes, JedisClientConfig config, int tries,
                org.apache.commons.pool2.impl.GenericObjectPoolConfig<Connection> pool) {}
            public Connection getConnectionFromSlot(int slot) { return null; }
        }",
    ),
    (
        "redis.clients.jedis.JedisPooled",
        "class JedisPooled extends UnifiedJedis {
            public JedisPooled(org.apache.commons.pool2.impl.GenericObjectPoolConfig<Connection> pool,
                HostAndPort address, JedisClientConfig config) {}
        }",
    ),
    (
        "redis.clients.jedis.UnifiedJedis",
        "class UnifiedJedis {
            public Object sendCommand(String key, redis.clients.jedis.commands.ProtocolCommand command, String... words) {
                return null;
            }
        }",
    ),
    ("redis.clients.jedis.commands.ProtocolCommand", "interface ProtocolCommand { byte[] getRaw(); }"),
    (
        "redis.clients.jedis.util.JedisClusterCRC16",
        "class JedisClusterCRC16 { public static int getSlot(String key) { return 0; } }",
    ),
];

pub(super) const LETTUCE: &[Class] = &[
    (
        "io.lettuce.core.ClientOptions",
        "class ClientOptions {
            public static Builder builder() { return null; }
            public static class Builder {
                public Builder autoReconnect(boolean does) { return this; }
                public ClientOptions build() { return null; }
            }
        }",
    ),
    (
        "io.lettuce.core.ConnectionFuture",
        "interface ConnectionFuture<T> extends java.util.concurrent.CompletionStage<T>, java.util.concurrent.Future<T> {}",
    ),
    (
        "io.lettuce.core.RedisClient",
        "class RedisClient {
            public static RedisClient create() { return null; }
            public static RedisClient create(io.lettuce.core.resource.ClientResources shared) { return null; }
            public io.lettuce.core.api.StatefulRedisConnection<String, String> connect(RedisURI uri) { return null; }
            public <K, V> ConnectionFuture<io.lettuce.core.api.StatefulRedisConnection<K, V>> connectAsync(
                io.lettuce.core.codec.RedisCodec<K, V> codec, RedisURI uri) { return null; }
            public io.lettuce.core.pubsub.StatefulRedisPubSubConnection<String, String> connectPubSub(RedisURI uri) {
                return null;
            }
            public io.lettuce.core.resource.ClientResources getResources() { return null; }
            public void setOptions(ClientOptions options) {}
        }",
    ),
    (
        "io.lettuce.core.RedisFuture",
        "interface RedisFuture<T> extends java.util.concurrent.CompletionStage<T>, java.util.concurrent.Future<T> {}",
    ),
    ("io.lettuce.core.RedisURI", "class RedisURI { public static RedisURI create(String uri) { return null; } }"),
    (
        "io.lettuce.core.api.StatefulConnection",
        "interface StatefulConnection<K, V> { java.util.concurrent.CompletableFuture<Void> closeAsync(); }",
    ),
    (
        "io.lettuce.core.api.StatefulRedisConnection",
        "interface StatefulRedisConnection<K, V> extends StatefulConnection<K, V> {
            io.lettuce.core.api.async.RedisAsyncCommands<K, V> async();
        }",
    ),
    (
        "io.lettuce.core.api.async.RedisAsyncCommands",
        "interface RedisAsyncCommands<K, V> {
            <T> io.lettuce.core.RedisFuture<T> dispatch(io.lettuce.core.protocol.ProtocolKeyword name,
                io.lettuce.core.output.CommandOutput<K, V, T> output, io.lettuce.core.protocol.CommandArgs<K, V> words);
        }",
    ),
    (
        "io.lettuce.core.cluster.RedisClusterClient",
        "class RedisClusterClient {
            public static RedisClusterClient create(io.lettuce.core.RedisURI uri) { return null; }
            public io.lettuce.core.cluster.api.StatefulRedisClusterConnection<String, String> connect() { return null; }
            public io.lettuce.core.cluster.models.partitions.Partitions getPartitions() { return null; }
            public io.lettuce.core.resource.ClientResources getResources() { return null; }
        }",
    ),
    ("io.lettuce.core.cluster.SlotHash", "class SlotHash { public static int getSlot(String key) { return 0; } }"),
    (
        "io.lettuce.core.cluster.api.StatefulRedisClusterConnection",
        "interface StatefulRedisClusterConnection<K, V> extends io.lettuce.core.api.StatefulConnection<K, V> {
            io.lettuce.core.api.async.RedisAsyncCommands<K, V> async();
        }",
    ),
    (
        "io.lettuce.core.cluster.models.partitions.Partitions",
        "class Partitions { public RedisClusterNode getPartitionBySlot(int slot) { return null; } }",
    ),
    (
        "io.lettuce.core.cluster.models.partitions.RedisClusterNode",
        "class RedisClusterNode { public io.lettuce.core.RedisURI getUri() { return null; } }",
    ),
    ("io.lettuce.core.codec.RedisCodec", "interface RedisCodec<K, V> {}"),
    (
        "io.lettuce.core.codec.StringCodec",
        "class StringCodec implements RedisCodec<String, String> { public static final StringCodec UTF8 = null; }",
    ),
    ("io.lettuce.core.output.CommandOutput", "class CommandOutput<K, V, T> {}"),
    (
        "io.lettuce.core.output.IntegerOutput",
        "class IntegerOutput<K, V> extends CommandOutput<K, V, Long> {
            public IntegerOutput(io.lettuce.core.codec.RedisCodec<K, V> codec) {}
        }",
    ),
    (
        "io.lettuce.core.protocol.CommandArgs",
        "class CommandArgs<K, V> {
            public CommandArgs(io.lettuce.core.codec.RedisCodec<K, V> codec) {}
            public CommandArgs<K, V> addKey(K key) { return this; }
            public CommandArgs<K, V> addValues(Iterable<V> values) { return this; }
            public CommandArgs<K, V> add(String word) { return this; }
            public CommandArgs<K, V> add(long number) { return this; }
        }",
    ),
    ("io.lettuce.core.protocol.ProtocolKeyword", "interface ProtocolKeyword { byte[] getBytes(); String name(); }"),
    (
        "io.lettuce.core.pubsub.RedisPubSubAdapter",
        "class RedisPubSubAdapter<K, V> implements RedisPubSubListener<K, V> {
            public void message(K channel, V message) {}
        }",
    ),
    (
        "io.lettuce.core.pubsub.RedisPubSubListener",
        "interface RedisPubSubListener<K, V> { void message(K channel, V message); }",
    ),
    (
        "io.lettuce.core.pubsub.StatefulRedisPubSubConnection",
        "interface StatefulRedisPubSubConnection<K, V> extends io.lettuce.core.api.StatefulConnection<K, V> {
            void addListener(RedisPubSubListener<K, V> listener);
            io.lettuce.core.pubsub.api.async.RedisPubSubAsyncCommands<K, V> async();
        }",
    ),
    (
        "io.lettuce.core.pubsub.api.async.RedisPubSubAsyncCommands",
        "interface RedisPubSubAsyncCommands<K, V> { io.lettuce.core.RedisFuture<Void> subscribe(K... channels); }",
    ),
    ("io.lettuce.core.resource.ClientResources", "interface ClientResources {}"),
];
