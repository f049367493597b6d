import java.util.Arrays;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;
import redis.clients.jedis.*;

class JedisLocks extends Locks {
    final HostAndPort address = new HostAndPort("127.0.0.1", 6379);
    final JedisClientConfig config = DefaultJedisClientConfig.builder().timeoutMillis((int) LATE).build();
    final GenericObjectPoolConfig<Connection> pool = new ConnectionPoolConfig();
    final UnifiedJedis redis = new JedisPooled(pool, address, config);

    Connection queueFor(String key) {
        return new Connection(address, config);
    }

    Long send(String... request) {
        return (Long) redis.sendCommand(request[1], () -> request[0].getBytes(), rest(request));
    }

    void await(long end, String... request) {
        try (Connection queue = queueFor(request[1])) {
            long left = Math.max(1, end - now());
            queue.setSoTimeout((int) (left + LATE));
            CommandArguments waits = new CommandArguments(() -> request[0].getBytes());
            queue.executeCommand(waits.addObjects((Object[]) rest(request)).add("BLOCK").add(left));
        }
    }

    static String[] rest(String[] request) {
        return Arrays.copyOfRange(request, 1, request.length);
    }
}
