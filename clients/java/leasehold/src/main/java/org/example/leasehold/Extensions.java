package org.example.leasehold;

import java.util.ArrayList;
import java.util.List;

/**
 * Extensions that the server may carry out after others.
 *
 * <pre>
 * EXTEND 1 s  ──► no answer, given up
 * EXTEND 60 s ───────────────────────────► answered
 *                     EXTEND 1 s ─────────────► carried out late: the lease ends a second from then
 * </pre>
 *
 * So an extension counts for no more than a shorter one that was given up and may still be on its way; and one that was asked
 * for earlier counts for nothing after a later one was answered.
 */
final class Extensions {
    /** How long a request may be on its way after it was given up. */
    private static final long LONGEST_WAY = 60_000_000_000L;

    private record Extension(int number, long ttl, long since) {}

    private final List<Extension> open = new ArrayList<>(2);
    private int next;
    private int answered;

    int begin(long ttl) {
        long now = Clock.now();
        open.removeIf(each -> now - each.since > LONGEST_WAY);
        open.add(new Extension(++next, ttl, now));
        return next;
    }

    /** For how much of its ttl it counts from when it was asked for; -1 if a later one was answered. */
    long counted(int number, boolean isRepeated, long ttl) {
        // An earlier try of it that was not answered may still be carried out.
        open.removeIf(each -> each.number == number && !isRepeated);
        if (number < answered) {
            return -1;
        }
        answered = number;
        for (Extension each : open) {
            ttl = Math.min(ttl, each.ttl);
        }
        return ttl;
    }
}
