package org.example.leasehold.spring;

import io.lettuce.core.AbstractRedisClient;
import io.lettuce.core.RedisClient;
import io.lettuce.core.cluster.RedisClusterClient;
import org.example.leasehold.Leasehold;
import org.example.leasehold.Settings;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnSingleCandidate;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.data.redis.autoconfigure.DataRedisConnectionDetails;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.RedisConfiguration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;

/**
 * Has a program of Spring Boot find a {@link Leasehold}: on the server that {@code spring.data.redis.*} names, or on that of a
 * {@link RedisClient} or {@link RedisClusterClient} if the program defines one. {@link LeaseholdProperties} are the settings, unless the program defines
 * {@link Settings}. It is closed after the requests of a web server have ended.
 */
@AutoConfiguration(afterName = "org.springframework.boot.data.redis.autoconfigure.DataRedisAutoConfiguration")
@EnableConfigurationProperties(LeaseholdProperties.class)
public final class LeaseholdAutoConfiguration {
    /** For Spring. */
    public LeaseholdAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    Settings leaseholdSettings(LeaseholdProperties properties) {
        return properties.settings();
    }

    @Bean
    @ConditionalOnBean(AbstractRedisClient.class)
    @ConditionalOnMissingBean
    Leasehold leasehold(AbstractRedisClient client, Settings settings) {
        return client instanceof RedisClusterClient cluster ? Leasehold.over(cluster, settings) : Leasehold.over((RedisClient) client, settings);
    }

    /** Has locks use the server of Spring Data. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass({LettuceConnectionFactory.class, DataRedisConnectionDetails.class})
    @ConditionalOnSingleCandidate(LettuceConnectionFactory.class)
    @ConditionalOnMissingBean({AbstractRedisClient.class, Leasehold.class})
    static final class Client {
        /**
         * A client like the factory's, since the factory shuts its own down when the context is stopped: before beans are
         * destroyed that may still hold locks, and for good.
         */
        @Bean(destroyMethod = "shutdown")
        AbstractRedisClient leaseholdClient(LettuceConnectionFactory factory, DataRedisConnectionDetails details) {
            if (details.getMasterReplica() != null) {
                throw new IllegalStateException("Leasehold has no locks on listed replicas: define a RedisClient for the primary");
            }
            LettuceConnectionFactory own = new LettuceConnectionFactory(place(factory), factory.getClientConfiguration());
            own.start();
            return own.getRequiredNativeClient();
        }

        private static RedisConfiguration place(LettuceConnectionFactory factory) {
            RedisConfiguration many = factory.isClusterAware() ? factory.getClusterConfiguration() : factory.getSentinelConfiguration();
            if (many != null) {
                return many;
            }
            RedisConfiguration socket = factory.getSocketConfiguration();
            return socket != null ? socket : factory.getStandaloneConfiguration();
        }
    }
}
