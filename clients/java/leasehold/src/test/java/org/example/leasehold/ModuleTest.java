package org.example.leasehold;

import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.TestInfo;
import org.junit.jupiter.api.Timeout;

/** Tests on one server with the module, each of a lock of its own. */
@Timeout(60)
abstract class ModuleTest {
    static Server server;
    Leasehold locks;
    String name;

    @BeforeAll
    static void startServer() {
        server = Server.withModule();
    }

    @AfterAll
    static void stopServer() {
        server.close();
    }

    Settings settings() {
        return Settings.defaults();
    }

    @BeforeEach
    void open(TestInfo info) {
        name = info.getDisplayName();
        locks = Leasehold.over(server.client, settings());
    }

    @AfterEach
    void close() {
        server.signal("CONT");
        locks.close();
    }
}
