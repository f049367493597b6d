package org.example.leasehold.shedlock;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.SetArgs;
import java.time.Duration;
import java.util.Optional;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.example.leasehold.Leasehold;
import org.example.leasehold.testkit.Server;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** What ShedLock's own tests do not ask. */
@Timeout(60)
class LeaseholdLockProviderTest {
    private static final Duration LONG = Duration.ofMinutes(1);
    private static Server server;
    private static Leasehold locks;

    @BeforeAll
    static void start() {
        server = Server.withModule();
        locks = Leasehold.over(server.client);
    }

    @AfterAll
    static void stop() {
        locks.close();
        server.close();
    }

    private static Optional<SimpleLock> lock(String name, Duration most, Duration least) {
        return new LeaseholdLockProvider(locks).lock(new LockConfiguration(ClockProvider.now(), name, most, least));
    }

    private static long left(String name) {
        return server.ask().pttl("job-lock:default:" + name);
    }

    @Test
    void itAndTheOwnProviderForRedisKeepEachOtherOut() {
        String key = "job-lock:default:shared";
        SetArgs asTheOther = SetArgs.Builder.nx().px(60_000);
        assertEquals("OK", server.ask().set(key, "ADDED:now@host:1", asTheOther));
        assertTrue(lock("shared", LONG, Duration.ZERO).isEmpty());
        server.ask().del(key);
        SimpleLock held = lock("shared", LONG, Duration.ZERO).orElseThrow();
        assertEquals(null, server.ask().set(key, "ADDED:now@host:1", asTheOther));
        held.unlock();
        assertEquals("OK", server.ask().set(key, "ADDED:now@host:1", asTheOther));
    }

    @Test
    void aLockThatSomebodyElseHasByNowIsNeitherExtendedNorReleased() {
        for (boolean isExtended : new boolean[] {true, false}) {
            SimpleLock late = lock("late", LONG, Duration.ZERO).orElseThrow();
            server.ask().del("job-lock:default:late");
            SimpleLock next = lock("late", LONG, Duration.ZERO).orElseThrow();
            if (isExtended) {
                assertTrue(late.extend(LONG, Duration.ZERO).isEmpty());
            } else {
                late.unlock();
            }
            assertTrue(left("late") > 0);
            next.unlock();
            assertEquals(-2, left("late"));
        }
    }

    @Test
    void anExtensionThatHoldsForLongerIsKeptAfterTheUnlock() {
        SimpleLock held = lock("kept", LONG, Duration.ofSeconds(5)).orElseThrow();
        held.extend(LONG, Duration.ofSeconds(30)).orElseThrow().unlock();
        assertTrue(left("kept") > 20_000 && left("kept") <= 31_000);
        lock("brief", LONG, Duration.ZERO).orElseThrow().extend(LONG, Duration.ofMillis(5)).orElseThrow().unlock();
        assertTrue(left("brief") <= 1_005);
    }

    /** Here a lease ends earlier than on the server, by what two clocks may differ by. */
    @Test
    void aTaskThatTakesNearlyAsLongAsItMayLeavesTheLockHeldForAsLongAsItMust() throws Exception {
        Duration all = Duration.ofSeconds(4);
        long begun = System.nanoTime();
        SimpleLock held = lock("whole", all, all).orElseThrow();
        Thread.sleep(all.minusMillis(30).minusNanos(System.nanoTime() - begun).toMillis());
        held.unlock();
        assertTrue(left("whole") > 0 || System.nanoTime() - begun >= all.toNanos());
    }

    @Test
    void whoIsInterruptedHasNoLock() {
        server.ask().clientPause(300);
        Thread.currentThread().interrupt();
        assertThrows(LockException.class, () -> lock("interrupted", LONG, Duration.ZERO));
        assertTrue(Thread.interrupted());
        lock("interrupted", LONG, Duration.ZERO).orElseThrow().unlock();
    }
}
