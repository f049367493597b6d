package org.example.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;

import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;

/** ShedLock's own tests of providers that extend locks. */
@Timeout(60)
class ContractTest extends AbstractExtensibleLockProviderIntegrationTest {
    static Server server;

    @BeforeAll
    static void start() throws Exception {
        server = Server.withModule();
    }

    @AfterAll
    static void stop() throws Exception {
        server.close();
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new LeaseholdLockProvider(server.locks);
    }

    @Override
    protected void assertUnlocked(String name) {
        assertEquals(0, server.commands.exists("job-lock:default:" + name));
    }

    @Override
    protected void assertLocked(String name) {
        assertEquals(1, server.commands.exists("job-lock:default:" + name));
    }
}
