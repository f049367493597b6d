package org.example.leasehold.shedlock;

import org.example.leasehold.Leasehold;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.BeforeAll;

/** The same on a server without the module, and without a prefix. */
class PlainContractTest extends ContractTest {
    /** Instead of the other server. */
    @BeforeAll
    static void start() {
        on(Server.plain());
    }

    @Override
    LeaseholdLockProvider over(Leasehold locks) {
        return new LeaseholdLockProvider(locks, "");
    }

    @Override
    String key(String name) {
        return name;
    }
}
