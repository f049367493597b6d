package org.example.leasehold.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.time.Duration;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.example.leasehold.Leasehold;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.springframework.integration.leader.Context;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.support.leader.LockRegistryLeaderInitiator;

/** Spring Integration elects leaders by registries, and is the one that uses what they say of losses. */
@Timeout(60)
class LeaderTest {
    private final BlockingQueue<String> told = new LinkedBlockingQueue<>();

    private final class Candidate extends DefaultCandidate {
        Candidate(String id) {
            super(id, "leader");
        }

        @Override
        public void onGranted(Context context) {
            told.add(getId() + " leads");
        }

        @Override
        public void onRevoked(Context context) {
            told.add(getId() + " does not");
        }
    }

    private LockRegistryLeaderInitiator started(Leasehold locks, String id) {
        var initiator = new LockRegistryLeaderInitiator(new LeaseholdLockRegistry(locks, "elections", Duration.ofMillis(600)), new Candidate(id));
        initiator.setHeartBeatMillis(50);
        initiator.setBusyWaitMillis(10);
        initiator.start();
        return initiator;
    }

    private String told() throws InterruptedException {
        return told.poll(20, TimeUnit.SECONDS);
    }

    @Test
    void aLeaderThatStopsOrLosesItsLockIsFollowedByTheNext() throws Exception {
        try (Server server = Server.withModule();
                Leasehold locks = Leasehold.over(server.client)) {
            LockRegistryLeaderInitiator anna = started(locks, "anna");
            assertEquals("anna leads", told());
            LockRegistryLeaderInitiator ben = started(locks, "ben");
            assertNull(told.poll(300, TimeUnit.MILLISECONDS));
            anna.stop();
            assertEquals("anna does not", told());
            assertEquals("ben leads", told());

            // The lease learns of it by its renewal.
            server.ask().set("elections:leader", "somebody");
            assertEquals("ben does not", told());
            server.ask().del("elections:leader");
            assertEquals("ben leads", told());
            ben.stop();
            assertEquals("ben does not", told());
        }
    }
}
