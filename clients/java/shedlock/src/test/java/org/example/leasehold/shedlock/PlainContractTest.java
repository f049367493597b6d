package org.example.leasehold.shedlock;

import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.test.support.AbstractExtensibleLockProviderIntegrationTest;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Timeout;

/** The same on a server without the module. */
@Timeout(60)
class PlainContractTest extends AbstractExtensibleLockProviderIntegrationTest {
    static Server server;

    @BeforeAll
    static void start() throws Exception {
        server = Server.plain();
    }

    @AfterAll
    static void stop() throws Exception {
        server.close();
    }

    @Override
    protected ExtensibleLockProvider getLockProvider() {
        return new LeaseholdLockProvider(server.locks, "");
    }

    @Override
    protected void assertUnlocked(String name) {
        Assertions.assertEquals(0, server.commands.exists(name));
    }

    @Override
    protected void assertLocked(String name) {
        Assertions.assertEquals(1, server.commands.exists(name));
    }
}
