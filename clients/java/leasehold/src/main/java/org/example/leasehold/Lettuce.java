package org.example.leasehold;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisCommandExecutionException;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.StatefulConnection;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import io.lettuce.core.sentinel.api.StatefulRedisSentinelConnection;
import java.lang.reflect.Method;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** Servers that Lettuce connects to. */
abstract class Lettuce implements Connector {
    /** Longer than any server needs that is there. */
    private static final long ANSWERS_WITHIN = 5;

    /** Whose resources and options connections have. */
    final RedisClient client;

    Lettuce(RedisClient client) {
        this.client = client;
    }

    /** Null: that of the client. */
    abstract @Nullable RedisURI uriOf(String place);

    @Override
    public Wire connect(String place) {
        return told(() -> {
            RedisURI uri = uriOf(place);
            return new Connection(uri == null ? client.connect(ByteArrayCodec.INSTANCE) : client.connect(ByteArrayCodec.INSTANCE, uri));
        });
    }

    @Override
    public Wire listen(String place, byte[] channel, Consumer<byte[]> heard) {
        return told(() -> {
            RedisURI uri = uriOf(place);
            StatefulRedisPubSubConnection<byte[], byte[]> connection =
                    uri == null ? client.connectPubSub(ByteArrayCodec.INSTANCE) : client.connectPubSub(ByteArrayCodec.INSTANCE, uri);
            connection.addListener(new RedisPubSubAdapter<>() {
                @Override
                public void message(byte[] on, byte[] message) {
                    heard.accept(message);
                }
            });
            try {
                connection.async().subscribe(channel).get(ANSWERS_WITHIN, TimeUnit.SECONDS);
            } catch (Exception e) {
                connection.closeAsync();
                throw e;
            }
            return new Connection(connection);
        });
    }

    private interface Work<T> {
        T run() throws Exception;
    }

    private static <T> T told(Work<T> work) {
        try {
            return work.run();
        } catch (Exception e) {
            Throwable told = told(e);
            throw told instanceof RuntimeException known ? known : new IllegalStateException(told);
        }
    }

    /** What a server said may be the cause of what is thrown. */
    private static Throwable told(Throwable error) {
        for (Throwable each = error; each != null; each = each.getCause()) {
            if (each instanceof RedisCommandExecutionException) {
                return new ServerException(String.valueOf(each.getMessage()));
            }
        }
        return error;
    }

    /** One server, or the primary that Sentinels name to the client whenever it connects. */
    static final class Single extends Lettuce {
        private final @Nullable RedisURI uri;

        Single(RedisClient client, @Nullable RedisURI uri) {
            super(client);
            this.uri = uri;
        }

        @Override
        @Nullable RedisURI uriOf(String place) {
            return uri;
        }
    }

    /** One of several places, each by its host and port. */
    private abstract static class Named extends Lettuce {
        Named(RedisClient client) {
            super(client);
        }

        @Override
        public boolean isSingle() {
            return false;
        }

        static RedisURI at(RedisURI like, String place) {
            int colon = place.lastIndexOf(':');
            int port = Integer.parseInt(place.substring(colon + 1));
            return RedisURI.builder(like).withHost(place.substring(0, colon)).withPort(port).build();
        }
    }

    /** The primary that Sentinels name. */
    static final class Watched extends Named {
        private final RedisURI uri;
        private volatile @Nullable StatefulRedisSentinelConnection<String, String> sentinel;
        private volatile @Nullable String primary;
        private volatile boolean isClosed;

        Watched(RedisClient client, RedisURI uri) {
            super(client);
            this.uri = uri;
        }

        @Override
        public boolean isWatched() {
            return true;
        }

        @Override
        public @Nullable String placeOf(int slot) {
            return primary;
        }

        @Override
        RedisURI uriOf(String place) {
            return at(uri, place);
        }

        /** The connection is to the first Sentinel that is there, and to another one if it does not answer. */
        @Override
        public synchronized void look(List<byte[]> keys) {
            StatefulRedisSentinelConnection<String, String> asked = sentinel;
            if (asked == null || !asked.isOpen()) {
                hangUp();
                asked = client.connectSentinel(uri);
                sentinel = asked;
            }
            try {
                InetSocketAddress named = (InetSocketAddress)
                        asked.async().getMasterAddrByName(uri.getSentinelMasterId()).get(ANSWERS_WITHIN, TimeUnit.SECONDS);
                if (named == null) {
                    throw new IllegalStateException("no Sentinel names a primary of " + uri.getSentinelMasterId());
                }
                primary = named.getHostString() + ":" + named.getPort();
            } catch (Exception e) {
                hangUp();
                throw new IllegalStateException(e);
            }
            if (isClosed) {
                hangUp();
            }
        }

        private void hangUp() {
            StatefulRedisSentinelConnection<String, String> former = sentinel;
            sentinel = null;
            if (former != null) {
                former.closeAsync();
            }
        }

        @Override
        public void close() {
            isClosed = true;
            hangUp();
        }
    }

    /** The nodes of a cluster. */
    static final class Cluster extends Named {
        private final RedisClusterClient cluster;
        private volatile boolean isKnown;

        Cluster(RedisClusterClient cluster) {
            super(RedisClient.create(cluster.getResources()));
            this.cluster = cluster;
        }

        @Override
        public int slotOf(byte[] key) {
            return SlotHash.getSlot(key);
        }

        @Override
        public @Nullable String placeOf(int slot) {
            RedisClusterNode node = isKnown ? cluster.getPartitions().getPartitionBySlot(slot) : null;
            return node == null ? null : node.getUri().getHost() + ":" + node.getUri().getPort();
        }

        @Override
        public void look(List<byte[]> keys) {
            cluster.refreshPartitions();
            isKnown = true;
        }

        @Override
        RedisURI uriOf(String place) {
            client.setOptions(cluster.getOptions());
            return at(first(), place);
        }

        /** With the credentials of all nodes. Lettuce shows it to subclasses alone, and what it knows of a node has none. */
        private RedisURI first() {
            try {
                Method first = RedisClusterClient.class.getDeclaredMethod("getFirstUri");
                first.setAccessible(true);
                return (RedisURI) first.invoke(cluster);
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void close() {
            client.shutdownAsync(0, 0, TimeUnit.SECONDS);
        }
    }

    /**
     * Lettuce connects again by itself, and sends again what was not answered. Here a connection ends when it is cut: what was
     * not answered is asked for again by those who still want it.
     */
    private static final class Connection implements Wire {
        private final StatefulConnection<byte[], byte[]> connection;
        private final Set<AsyncCommand<byte[], byte[], Object>> sent = ConcurrentHashMap.newKeySet();

        private Connection(StatefulConnection<byte[], byte[]> connection) {
            this.connection = connection;
        }

        @Override
        public void send(List<byte[]> words, boolean isAsking, BiConsumer<@Nullable Object, @Nullable Throwable> answer) {
            AsyncCommand<byte[], byte[], Object> command = command(words);
            sent.add(command);
            command.whenComplete((reply, error) -> {
                sent.remove(command);
                answer.accept(reply, error == null ? null : told(error));
            });
            try {
                if (isAsking) {
                    connection.dispatch(List.of(command(Words.of("ASKING")), command));
                } else {
                    connection.dispatch(command);
                }
            } catch (RuntimeException e) {
                command.completeExceptionally(e);
            }
        }

        @Override
        public void whenCut(Runnable cut) {
            connection.addListener(new RedisConnectionStateListener() {
                @Override
                public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
                    cut.run();
                }
            });
        }

        @Override
        public void close() {
            if (!connection.isOpen()) {
                forget();
            }
            connection.closeAsync().whenComplete((done, error) -> forget());
        }

        /** Lettuce does not send again what is done. What is done before it is written is not sent at all. */
        private void forget() {
            sent.forEach(command -> command.cancel(false));
        }
    }

    private record Name(String text, byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    private static AsyncCommand<byte[], byte[], Object> command(List<byte[]> words) {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        words.subList(1, words.size()).forEach(args::add);
        Name name = new Name(new String(words.get(0), StandardCharsets.US_ASCII), words.get(0));
        return new AsyncCommand<>(new Command<>(name, new Reply(), args));
    }

    private static final class Reply extends CommandOutput<byte[], byte[], Object> {
        private final Deque<List<@Nullable Object>> open = new ArrayDeque<>(2);

        private Reply() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        private void put(@Nullable Object value) {
            if (open.isEmpty()) {
                output = value;
            } else {
                open.peek().add(value);
            }
        }

        @Override
        public void set(long number) {
            put(number);
        }

        @Override
        public void set(double number) {
            put(number);
        }

        @Override
        public void set(boolean is) {
            put(is);
        }

        @Override
        public void set(@Nullable ByteBuffer bytes) {
            put(bytes == null ? null : codec.decodeValue(bytes));
        }

        @Override
        public void setBigNumber(@Nullable ByteBuffer bytes) {
            set(bytes);
        }

        @Override
        public void multi(int count) {
            if (count < 0) {
                put(null);
                return;
            }
            List<@Nullable Object> list = new ArrayList<>();
            put(list);
            open.push(list);
        }

        @Override
        public void complete(int depth) {
            while (open.size() > depth) {
                open.pop();
            }
        }
    }
}
