package org.example.leasehold.spring;

import java.time.Duration;
import org.example.leasehold.Settings;
import org.jspecify.annotations.Nullable;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.PropertyMapper;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The properties {@code leasehold.*}. What is not set is as {@link Settings} has it.
 *
 * @param prefix What the name of every lock begins with on the server.
 * @param ttl How long a lease lasts unless it is renewed, 30s.
 * @param patience How long acquire waits, without limit unless it is set.
 * @param response How long to wait for each answer of a server, 1s.
 * @param within How long a request that does not wait goes on trying when servers fail, and a release, 3s.
 * @param unreachableAfter How long a request that waits goes on while no server answers, 30s.
 * @param slice How often a place in the queue is asked for again, 5s.
 * @param confirm Whether the server confirms a grant that a message tells before the work begins.
 * @param registryKey What the names of the locks of Spring Integration's registry begin with, after the prefix.
 */
@ConfigurationProperties("leasehold")
public record LeaseholdProperties(
        @Nullable String prefix,
        @Nullable Duration ttl,
        @Nullable Duration patience,
        @Nullable Duration response,
        @Nullable Duration within,
        @Nullable Duration unreachableAfter,
        @Nullable Duration slice,
        @Nullable Boolean confirm,
        @DefaultValue("registry") String registryKey) {

    Settings settings() {
        PropertyMapper map = PropertyMapper.get();
        Settings settings = Settings.defaults();
        settings = map.from(prefix).to(settings, Settings::prefix);
        settings = map.from(ttl).to(settings, Settings::ttl);
        settings = map.from(patience).to(settings, Settings::patience);
        settings = map.from(response).to(settings, Settings::response);
        settings = map.from(within).to(settings, Settings::within);
        settings = map.from(unreachableAfter).to(settings, Settings::unreachableAfter);
        settings = map.from(slice).to(settings, Settings::slice);
        return map.from(confirm).to(settings, Settings::confirm);
    }
}
