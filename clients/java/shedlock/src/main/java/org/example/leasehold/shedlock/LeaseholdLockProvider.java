package org.example.leasehold.shedlock;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.AbstractSimpleLock;
import net.javacrumbs.shedlock.core.ClockProvider;
import net.javacrumbs.shedlock.core.ExtensibleLockProvider;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.support.LockException;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.example.leasehold.Options;

/**
 * Has ShedLock use the locks of a server of Redis or Valkey.
 *
 * <pre>{@code
 * LockProvider provider = new LeaseholdLockProvider(locks);
 * }</pre>
 *
 * <p>A lock is held for {@code lockAtMostFor}, from before the server was asked, and is not renewed; the shortest is 3 ms. What a
 * task has lost is never released or extended, since somebody else may hold it.
 *
 * <p>No answer of a server, and its refusals, are {@link LeaseholdException}s. To unlock throws nothing: a release that fails
 * is logged, and the lock stays until {@code lockAtMostFor} is over.
 */
public final class LeaseholdLockProvider implements ExtensibleLockProvider {
    private static final String PREFIX = "job-lock:default:";
    private static final Duration SHORTEST = Duration.ofMillis(3);

    private final Leasehold locks;
    private final String prefix;

    /**
     * Returns a provider whose locks have the names that those of ShedLock's own provider for Redis have by default, so that
     * the two keep each other out: {@code job-lock:default:} and the name of the task.
     *
     * @param locks stays open
     */
    public LeaseholdLockProvider(Leasehold locks) {
        this(locks, PREFIX);
    }

    /**
     * Returns a provider.
     *
     * @param locks stays open
     * @param prefix what the name of each lock begins with, after the prefix that the settings of the locks have
     */
    public LeaseholdLockProvider(Leasehold locks, String prefix) {
        this.locks = locks;
        this.prefix = prefix;
    }

    @Override
    public Optional<SimpleLock> lock(LockConfiguration configuration) {
        Options options = Options.none()
                .ttl(ttl(configuration))
                .renewFor(Duration.ZERO)
                .holdAtLeast(configuration.getLockAtLeastFor());
        try {
            Lease lease = locks.write(prefix + configuration.getName()).tryAcquire(options);
            return Optional.ofNullable(lease).map(held -> new Held(held, configuration, configuration.getLockAtLeastUntil()));
        } catch (InterruptedException e) {
            throw interrupted(configuration, e);
        }
    }

    private static Duration ttl(LockConfiguration configuration) {
        Duration longest = configuration.getLockAtMostFor();
        return longest.compareTo(SHORTEST) < 0 ? SHORTEST : longest;
    }

    private static LockException interrupted(LockConfiguration configuration, InterruptedException e) {
        Thread.currentThread().interrupt();
        return new LockException("interrupted while the server was asked for the lock " + configuration.getName(), e);
    }

    private static final class Held extends AbstractSimpleLock {
        /** An extension that is over before it is answered would leave the lock held for lockAtMostFor. */
        private static final Duration TIME_TO_ANSWER = Duration.ofSeconds(1);

        private static final System.Logger LOGGER = System.getLogger(LeaseholdLockProvider.class.getName());

        private final Lease lease;
        /** A release of the lease leaves the lock held until then. Extensions do not change it. */
        private final Instant heldByRelease;

        Held(Lease lease, LockConfiguration configuration, Instant heldByRelease) {
            super(configuration);
            this.lease = lease;
            this.heldByRelease = heldByRelease;
        }

        private Duration left() {
            return Duration.between(ClockProvider.now(), lockConfiguration.getLockAtLeastUntil());
        }

        private boolean mayBeFree() {
            return left().isNegative() || left().isZero();
        }

        @Override
        protected void doUnlock() {
            if (mayBeFree()) {
                lease.close();
            } else if (!lease.isHeld()) {
                // Here the lease ends a little earlier than on the server, which holds the lock to the end.
                return;
            } else if (lockConfiguration.getLockAtLeastUntil().isAfter(heldByRelease)) {
                runOut();
            } else {
                lease.close();
            }
        }

        private void runOut() {
            try {
                lease.extend(left().plus(TIME_TO_ANSWER));
                lease.detach();
            } catch (LeaseholdException.Lost e) {
                if (mayBeFree()) {
                    lease.close();
                }
            } catch (LeaseholdException e) {
                LOGGER.log(System.Logger.Level.WARNING, "{0} is held until lockAtMostFor is over: {1}", lease.name(), e.getMessage());
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        protected Optional<SimpleLock> doExtend(LockConfiguration extended) {
            try {
                lease.extend(ttl(extended));
                return Optional.of(new Held(lease, extended, heldByRelease));
            } catch (LeaseholdException.Lost e) {
                if (mayBeFree()) {
                    lease.close();
                }
                return Optional.empty();
            } catch (InterruptedException e) {
                throw interrupted(extended, e);
            }
        }
    }
}
