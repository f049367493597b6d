package org.example.leasehold;

import static java.nio.charset.StandardCharsets.US_ASCII;
import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What is asked of a server about a lock, by whom.
 *
 * @param keys the lock, and what is wanted with it: all or nothing
 * @param share how many holders at a time this one tolerates, itself included; 0: any number
 * @param grace held as long as a connection, and so many nanoseconds longer; -1: it is not bound
 */
record Claim(List<byte[]> keys, byte[] owner, int share, long grace) {
    static final int ANY_NUMBER = 0;
    static final int EXCLUSIVE = 1;

    enum Asks {
        ACQUIRE,
        /** Keeps a place in the queue for so long. The grant is told on the channel, if there is one. */
        TICKET,
        /** Waits in the queue on a connection of its own, for so long. */
        WAIT,
        EXTEND,
        /** Has it by a larger fence: where several servers are to have one. */
        RAISE,
        /** Without a fence: whatever the owner was granted, and its place in the queue. */
        RELEASE
    }

    /** Durations in nanoseconds; fence is 0 if it is not known, and channel is empty where nobody is told. */
    record Question(Asks asks, long ttl, long kept, byte[] channel, long fence) {
        private static final byte[] NOBODY = {};

        static Question acquire(long ttl) {
            return new Question(Asks.ACQUIRE, ttl, 0, NOBODY, 0);
        }

        static Question ticket(long ttl, long kept, boolean isTold, byte[] channel) {
            return new Question(Asks.TICKET, ttl, kept, isTold ? channel : NOBODY, 0);
        }

        static Question await(long ttl, long patience) {
            return new Question(Asks.WAIT, ttl, patience, NOBODY, 0);
        }

        static Question raise(long fence) {
            return new Question(Asks.RAISE, 0, 0, NOBODY, fence);
        }

        static Question extend(long ttl, long fence) {
            return new Question(Asks.EXTEND, ttl, 0, NOBODY, fence);
        }

        static Question release(long fence) {
            return new Question(Asks.RELEASE, 0, 0, NOBODY, fence);
        }

        boolean acquires() {
            return asks == Asks.ACQUIRE || asks == Asks.TICKET || asks == Asks.WAIT;
        }
    }

    Claim as(byte[] owner) {
        return new Claim(keys, owner, share, grace);
    }

    Claim sharing(int share) {
        return new Claim(keys, owner, share, grace);
    }

    byte[] key() {
        return keys.get(0);
    }

    /** What a server without the module does not have. */
    @Nullable String needsModule() {
        return grace >= 0 ? "a lock that ends with a connection" : share != EXCLUSIVE ? "a lock with several holders" : null;
    }

    /** Spells a question in the commands of the module. */
    List<byte[]> words(Question question) {
        List<byte[]> words = new ArrayList<>(13);
        words.add(commandOf(question.asks).getBytes(US_ASCII));
        words.add(key());
        words.add(owner);
        if (question.ttl > 0) {
            words.add(millis(question.ttl));
        }
        if (question.asks == Asks.WAIT) {
            words.add(BLOCK);
            words.add(millis(question.kept));
        }
        if (question.asks == Asks.TICKET) {
            words.add(TICKET);
            words.add(millis(question.kept));
            if (question.channel.length > 0) {
                words.add(NOTIFY);
                words.add(question.channel);
            }
        }
        if (!question.acquires() && question.fence != 0) {
            words.add(ascii(question.fence));
        }
        if (question.acquires() && share != EXCLUSIVE) {
            words.add(SHARE);
            words.add(ascii(share));
        }
        // A connection that waits is closed after that.
        if (question.acquires() && grace >= 0 && question.asks != Asks.WAIT) {
            words.add(EPHEMERAL);
            words.add(grace == 0 ? ascii(0) : millis(grace));
        }
        if (keys.size() > 1) {
            words.add(ALSO);
            words.add(ascii(keys.size() - 1));
            words.addAll(keys.subList(1, keys.size()));
        }
        return words;
    }

    private static String commandOf(Asks asks) {
        return switch (asks) {
            case ACQUIRE, TICKET, WAIT -> "LOCK.ACQUIRE";
            case EXTEND -> "LOCK.EXTEND";
            case RAISE -> "LOCK.RAISE";
            case RELEASE -> "LOCK.RELEASE";
        };
    }

    private static final byte[] BLOCK = "BLOCK".getBytes(US_ASCII);
    private static final byte[] EPHEMERAL = "EPHEMERAL".getBytes(US_ASCII);
    private static final byte[] TICKET = "TICKET".getBytes(US_ASCII);
    private static final byte[] NOTIFY = "NOTIFY".getBytes(US_ASCII);
    private static final byte[] SHARE = "SHARE".getBytes(US_ASCII);
    private static final byte[] ALSO = "ALSO".getBytes(US_ASCII);

    static byte[] ascii(long number) {
        return Long.toString(number).getBytes(US_ASCII);
    }

    /** Whole milliseconds, as servers take them. */
    static byte[] millis(long nanos) {
        return ascii(Math.max(1, nanos / 1_000_000));
    }

    static byte[] bytes(String text) {
        return text.getBytes(UTF_8);
    }
}
