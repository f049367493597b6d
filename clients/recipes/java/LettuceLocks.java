import io.lettuce.core.*;
import io.lettuce.core.api.*;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.*;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;

class LettuceLocks extends Locks {
    final RedisURI uri = RedisURI.create("redis://127.0.0.1:6379");
    final RedisClient client = RedisClient.create();
    final StatefulRedisConnection<String, String> redis = client.connect(uri);
    final RedisClient queues = RedisClient.create(client.getResources());

    LettuceLocks() {
        queues.setOptions(ClientOptions.builder().autoReconnect(false).build());
    }

    RedisURI nodeOf(String key) {
        return uri;
    }

    Long send(String... request) throws Exception {
        return redis.async().dispatch(name(request), new IntegerOutput<>(StringCodec.UTF8), rest(request))
            .get(LATE, TimeUnit.MILLISECONDS);
    }

    void await(long end, String... request) throws Exception {
        var connecting = queues.connectAsync(StringCodec.UTF8, nodeOf(request[1]));
        try {
            var queue = connecting.get(end + LATE - now(), TimeUnit.MILLISECONDS);
            long left = Math.max(1, end - now());
            queue.async().dispatch(name(request), new IntegerOutput<>(StringCodec.UTF8), rest(request).add("BLOCK").add(left))
                .get(left + LATE, TimeUnit.MILLISECONDS);
        } finally {
            connecting.thenAccept(StatefulConnection::closeAsync);
        }
    }

    static CommandArgs<String, String> rest(String[] request) {
        var rest = Arrays.asList(request).subList(2, request.length);
        return new CommandArgs<>(StringCodec.UTF8).addKey(request[1]).addValues(rest);
    }

    static ProtocolKeyword name(String[] request) {
        return new ProtocolKeyword() {
            public byte[] getBytes() { return request[0].getBytes(); }
            public String name() { return request[0]; }
        };
    }
}
