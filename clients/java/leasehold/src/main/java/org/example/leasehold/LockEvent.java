package org.example.leasehold;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * A step that a lock takes, for traces and measures: see {@link Settings#onEvent}.
 *
 * @param step what it is
 * @param name the lock; several are listed
 * @param owner whoever holds it or asks for it, as the server knows it
 * @param fence from the grant on; 0 before
 * @param after how long after it was asked for, until it is granted or refused; and after the grant from then on
 * @param outcome of a loss, as {@code taken}, and of a release, as {@code released}
 * @param error why it was refused or lost, or is left to its lease
 */
public record LockEvent(
        Step step, String name, String owner, long fence, Duration after, @Nullable String outcome, @Nullable LeaseholdException error) {
    /** What happens to a lock. */
    public enum Step {
        /** It is asked for. */
        ASKED,
        /** It is waited for in the server's queue. */
        QUEUED,
        /** It is held. */
        GRANTED,
        /** Nobody has it for this: others do, or the error says why. */
        REFUSED,
        /** Its lease was extended. */
        RENEWED,
        /** It is held no more, and nobody has given it up. */
        LOST,
        /** It was given up, or left to its lease as the error says. */
        RELEASED
    }
}
