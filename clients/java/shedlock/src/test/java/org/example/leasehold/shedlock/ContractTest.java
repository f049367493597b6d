package org.example.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.example.leasehold.Leasehold;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own tests of providers that extend locks. */
@Timeout(60)
class ContractTest extends AbstractExtensibleLockProviderIntegrationTest {
    private static Server server;
    private static Leasehold locks;

    @BeforeAll
    static void start() {
        on(Server.withModule());
    }

    static void on(Server started) {
        server = started;
        locks = Leasehold.over(server.client);
    }

    @AfterAll
    static void stop() {
        locks.close();
        server.close();
    }

    LeaseholdLockProvider over(Leasehold locks) {
        return new LeaseholdLockProvider(locks);
    }

    String key(String name) {
        return "job-lock:default:" + name;
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return over(locks);
    }

    @Override
    protected void assertUnlocked(String name) {
        assertEquals(0, server.ask().exists(key(name)));
    }

    @Override
    protected void assertLocked(String name) {
        assertEquals(1, server.ask().exists(key(name)));
    }
}
