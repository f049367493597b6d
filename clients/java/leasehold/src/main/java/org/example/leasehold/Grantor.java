package org.example.leasehold;

import org.jspecify.annotations.Nullable;

/** Who grants locks, for those who ask: servers that have each lock once, or most of several. All is done in turn. */
interface Grantor {
    /** Exactly one of the two is given, unless the reply is nil. */
    interface Answer {
        void came(@Nullable Object reply, @Nullable Throwable error);
    }

    /** What was asked once, until it is answered or nobody waits for the answer. */
    interface Try {
        /** Nobody waits for the answer any more. */
        void giveUp();

        /** Whether there was a connection to send it on. */
        default boolean isSent() {
            return true;
        }

        /** The connection that it was sent on last. */
        default Link.@Nullable Line line() {
            return null;
        }
    }

    /** What becomes of tries, for whoever may have to give back what they come to. */
    interface Fate {
        /** It may have been heard, or was. Then it is granted, or has a place. */
        default void mayHold() {}

        /** An answer came that nobody waits for: the lock may be granted, or have a place in the queue. */
        default void late() {}

        /** It was asked on this line, and not answered. */
        default void left(Link.Line line) {}

        /** What it came to ends with this line. */
        default void bound(Link.Line line) {}
    }

    /** A fate of those that may be asked twice, and be heard late. */
    Fate NO_MATTER = new Fate() {};

    Try ask(Claim claim, Claim.Question question, Fate fate, Answer answer);

    /** How it is waited for. */
    Attempt.Activity acquire(Attempt attempt);

    /** Whether there is no queue for this key, as far as is known. */
    default boolean isPlain(byte[] key) {
        return false;
    }

    /** Whether it is to be asked about this key in other words. */
    default boolean learns(byte[] key, Throwable error) {
        return false;
    }

    /** The server does not grant locks any more: the one that does is looked for. */
    default void moved() {}

    /** Told of a try that has not been answered. A connection that has said nothing for so long is put aside. */
    default void silent(Try asked, long patience) {}

    LeaseholdException told(Throwable error);

    void close();
}
