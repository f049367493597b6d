package org.example.leasehold.spring;

import org.example.leasehold.Leasehold;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.context.annotation.Bean;
import org.springframework.integration.support.locks.LockRegistry;

/**
 * Has a program that uses Spring Integration find a {@link LeaseholdLockRegistry}, unless it defines another
 * {@link LockRegistry}. {@link LeaseholdProperties#registryKey} is its key, and {@link LeaseholdProperties#ttl} how long its
 * leases last.
 */
@AutoConfiguration(after = LeaseholdAutoConfiguration.class)
@ConditionalOnClass(LockRegistry.class)
@ConditionalOnBean(Leasehold.class)
public final class LeaseholdIntegrationAutoConfiguration {
    /** For Spring. */
    public LeaseholdIntegrationAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean(LockRegistry.class)
    LeaseholdLockRegistry leaseholdLockRegistry(Leasehold locks, LeaseholdProperties properties) {
        String key = properties.registryKey();
        return properties.ttl() == null ? new LeaseholdLockRegistry(locks, key) : new LeaseholdLockRegistry(locks, key, properties.ttl());
    }
}
