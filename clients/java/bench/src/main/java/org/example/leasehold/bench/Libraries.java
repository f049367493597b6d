package org.example.leasehold.bench;

import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.IntegerOutput;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.spring.LeaseholdLockRegistry;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;

/** The libraries, each as its documentation shows it, with its default settings. */
final class Libraries {
    static final String OURS = "leasehold";
    static final String FAIR = "Redisson, fair lock";

    private Libraries() {}

    static List<Library> all(RedisClient client, RedisURI uri) {
        Leasehold locks = Leasehold.over(client);
        LeaseholdLockRegistry registry = new LeaseholdLockRegistry(locks, "bench");
        RedissonClient redisson = redisson(uri);
        LettuceConnectionFactory factory = new LettuceConnectionFactory(uri.getHost(), uri.getPort());
        factory.start();
        RedisLockRegistry spring = new RedisLockRegistry(factory, "bench:spring");
        RedisLockRegistry told = new RedisLockRegistry(factory, "bench:told");
        told.setRedisLockType(RedisLockType.PUB_SUB_LOCK);
        // As if each thread were a process: threads that share a registry are kept out by a lock in memory first.
        Map<Thread, RedisLockRegistry> apiece = new ConcurrentHashMap<>();
        return List.of(
                new Library(OURS, (name, work) -> leasehold(locks, name, work), locks),
                Library.of("leasehold-spring", registry::obtain, () -> {}),
                bare(client),
                Library.of("Redisson, lock", redisson::getLock, () -> {}),
                Library.of(FAIR, redisson::getFairLock, redisson::shutdown),
                Library.of("RedisLockRegistry", spring::obtain, spring::destroy),
                Library.of("RedisLockRegistry, pub/sub", told::obtain, told::destroy),
                Library.of(
                        "RedisLockRegistry apiece",
                        name -> apiece.computeIfAbsent(Thread.currentThread(), thread -> new RedisLockRegistry(factory, "bench:apiece"))
                                .obtain(name),
                        () -> {
                            apiece.values().forEach(RedisLockRegistry::destroy);
                            factory.destroy();
                        }));
    }

    private static void leasehold(Leasehold locks, String name, Runnable work) throws InterruptedException {
        Lease lease = locks.acquire(name);
        try {
            work.run();
        } finally {
            lease.release();
        }
    }

    private static RedissonClient redisson(RedisURI uri) {
        Config config = new Config();
        config.useSingleServer().setAddress("redis://" + uri.getHost() + ":" + uri.getPort());
        return Redisson.create(config);
    }

    /** What the package sends for a free lock, on a connection for each thread: to wait, it blocks the connection. */
    private static Library bare(RedisClient client) {
        Map<Thread, RedisCommands<String, String>> lines = new ConcurrentHashMap<>();
        return new Library(
                "two bare commands",
                (name, work) -> {
                    RedisCommands<String, String> line =
                            lines.computeIfAbsent(Thread.currentThread(), thread -> client.connect().sync());
                    String owner = UUID.randomUUID().toString();
                    Long fence = line.dispatch(
                            Word.ACQUIRE, new IntegerOutput<>(StringCodec.UTF8), words(name, owner).add("30000").add("BLOCK").add("20000"));
                    work.run();
                    line.dispatch(Word.RELEASE, new IntegerOutput<>(StringCodec.UTF8), words(name, owner).add(fence));
                },
                () -> lines.clear());
    }

    private static CommandArgs<String, String> words(String name, String owner) {
        return new CommandArgs<>(StringCodec.UTF8).addKey(name).add(owner);
    }

    private enum Word implements ProtocolKeyword {
        ACQUIRE,
        RELEASE;

        @Override
        public byte[] getBytes() {
            return ("LOCK." + name()).getBytes(StandardCharsets.US_ASCII);
        }
    }
}
