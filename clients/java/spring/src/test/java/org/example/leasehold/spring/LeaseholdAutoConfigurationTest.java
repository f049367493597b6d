package org.example.leasehold.spring;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.lettuce.core.RedisClient;
import java.time.Duration;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.example.leasehold.Settings;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.boot.autoconfigure.AutoConfigurations;
import org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration;
import org.springframework.boot.test.context.FilteredClassLoader;
import org.springframework.boot.test.context.runner.ApplicationContextRunner;
import org.springframework.data.redis.core.StringRedisTemplate;
import org.springframework.integration.support.locks.DefaultLockRegistry;
import org.springframework.integration.support.locks.LockRegistry;

@Timeout(120)
class LeaseholdAutoConfigurationTest {
    private static Server server;
    private final ApplicationContextRunner program = new ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(LeaseholdAutoConfiguration.class, LeaseholdIntegrationAutoConfiguration.class));
    private final ApplicationContextRunner withSpringData = program.withConfiguration(AutoConfigurations.of(DataRedisAutoConfiguration.class))
            .withPropertyValues("spring.data.redis.url=redis://127.0.0.1:" + server.port);

    @BeforeAll
    static void start() {
        server = Server.withModule();
    }

    @AfterAll
    static void stop() {
        server.close();
    }

    @Test
    void locksAreOnTheServerOfSpringDataAndReleasedWhenTheProgramEnds() {
        withSpringData.withPropertyValues("leasehold.prefix=p:", "leasehold.ttl=5s", "leasehold.registry-key=k").run(context -> {
            Leasehold locks = context.getBean(Leasehold.class);
            Lease lease = locks.acquire("x");
            assertThat(server.ask().pttl("p:x")).isBetween(1L, 5_000L);
            context.getBean(LeaseholdLockRegistry.class).obtain("y").lock();
            assertThat(server.ask().pttl("p:k:y")).isBetween(1L, 5_000L);
            // As a program that is stopped has it until its beans are destroyed.
            context.getSourceApplicationContext().stop();
            assertThat(lease.isHeld()).isTrue();
            lease.extend(Duration.ofSeconds(20));
            context.getSourceApplicationContext().start();
            context.getBean(StringRedisTemplate.class).opsForValue().set("z", "1");
        });
        assertThat(server.ask().exists("p:x", "p:k:y")).isZero();
    }

    @Test
    void locksAreOnThePrimaryThatSentinelsName() throws Exception {
        try (Server.Sentinel sentinel = server.sentinel()) {
            program.withConfiguration(AutoConfigurations.of(DataRedisAutoConfiguration.class))
                    .withPropertyValues("spring.data.redis.sentinel.master=primary", "spring.data.redis.sentinel.nodes=127.0.0.1:" + sentinel.port())
                    .run(context -> {
                        context.getBean(Leasehold.class).acquire("watched");
                        assertThat(server.ask().exists("watched")).isOne();
                    });
        }
    }

    @Test
    void locksAreInTheClusterOfSpringData() throws Exception {
        try (Server cluster = Server.cluster()) {
            program.withConfiguration(AutoConfigurations.of(DataRedisAutoConfiguration.class))
                    .withPropertyValues("spring.data.redis.cluster.nodes=127.0.0.1:" + cluster.port)
                    .run(context -> {
                        context.getBean(Leasehold.class).acquire("spread");
                        assertThat(cluster.ask().exists("spread")).isOne();
                    });
        }
    }

    @Test
    void eachPropertyIsOneOfTheSettings() {
        withSpringData
                .withPropertyValues("leasehold.patience=1s", "leasehold.response=2s", "leasehold.within=2s", "leasehold.unreachable-after=5s")
                .withPropertyValues("leasehold.slice=1s", "leasehold.confirm=true")
                .run(context -> {
                    Leasehold locks = context.getBean(Leasehold.class);
                    locks.acquire("patience");
                    assertThatThrownBy(() -> locks.acquire("patience")).isInstanceOf(LeaseholdException.Busy.class);
                });
        withSpringData.withPropertyValues("leasehold.ttl=1ms")
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("ttl must be at least"));
    }

    @Test
    void whatTheProgramDefinesIsTaken() {
        try (RedisClient client = RedisClient.create("redis://127.0.0.1:" + server.port)) {
            program.withBean(RedisClient.class, () -> client)
                    .withBean(Settings.class, () -> Settings.defaults().prefix("mine:"))
                    .withBean(LockRegistry.class, DefaultLockRegistry::new)
                    .run(context -> {
                        context.getBean(Leasehold.class).acquire("x");
                        assertThat(server.ask().exists("mine:x")).isOne();
                        assertThat(context).doesNotHaveBean(LeaseholdLockRegistry.class);
                    });
        }
        try (Leasehold locks = Leasehold.over(server.client)) {
            withSpringData.withBean(Leasehold.class, () -> locks).run(context -> {
                assertThat(context.getBean(Leasehold.class)).isSameAs(locks);
                assertThat(context).doesNotHaveBean(RedisClient.class);
            });
        }
    }

    @Test
    void nothingIsMadeWhereThereIsNoServerAndListedReplicasAreRefused() {
        program.run(context -> assertThat(context).hasNotFailed().doesNotHaveBean(Leasehold.class).doesNotHaveBean(LockRegistry.class));
        program.withConfiguration(AutoConfigurations.of(DataRedisAutoConfiguration.class))
                .withPropertyValues("spring.data.redis.masterreplica.nodes=127.0.0.1:" + server.port)
                .run(context -> assertThat(context).getFailure().rootCause().hasMessageContaining("no locks on listed replicas"));
    }

    @Test
    void neitherSpringDataNorSpringIntegrationIsNeeded() {
        program.withClassLoader(new FilteredClassLoader("org.springframework.data", "org.springframework.integration"))
                .withBean(RedisClient.class, () -> RedisClient.create("redis://127.0.0.1:" + server.port))
                .run(context -> assertThat(context).hasSingleBean(Leasehold.class).doesNotHaveBean("leaseholdLockRegistry"));
    }
}
