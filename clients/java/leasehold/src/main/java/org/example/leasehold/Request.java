package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A question, asked until there is an answer or no more time. Every question may be asked twice: the same owner gets the same
 * grant, and whoever is not the holder changes nothing.
 */
final class Request implements Attempt.Activity {
    /**
     * A reply, and when the try was made that was answered.
     *
     * @param line null if several servers were asked
     * @param number 0 for nil
     * @param isRepeated an earlier try may have been heard too
     */
    record Answer(@Nullable Object reply, Link.@Nullable Line line, long number, boolean isNil, long asked, boolean isRepeated) {}

    /** Asks once. */
    interface Asks {
        Grantor.Try once(Grantor.Answer answer);
    }

    /** Exactly one of the two is given. */
    interface Then {
        void came(@Nullable Answer answer, @Nullable LeaseholdException error);
    }

    /** So often it is asked at once in other words. */
    private static final int MOST_WORDS = 2;

    private final Core core;
    private final Turn turn;
    private final Grantor server;
    private final byte[] key;
    private final Asks asks;
    private final boolean isNumber;
    private final long each;
    private final long until;
    private final Grantor.Fate fate;
    private final Then then;
    private int tries;
    private long asked;
    private boolean isRepeated;
    private boolean isOver;
    /** Who rests has no call that ends. */
    private final Runnable closed = this::closed;
    private Grantor.@Nullable Try current;
    private Turn.@Nullable Deadline deadline;

    private Request(Core core, Grantor server, byte[] key, Asks asks, boolean isNumber, long each, long until, Grantor.Fate fate, Then then) {
        this.core = core;
        this.turn = core.turn;
        this.server = server;
        this.key = key;
        this.asks = asks;
        this.isNumber = isNumber;
        this.each = each;
        this.until = until;
        this.fate = fate;
        this.then = then;
    }

    /** The fate is told what may have been heard and was not answered. */
    static Request about(
            Core core, Grantor server, Claim claim, Claim.Question question, long each, long until, Grantor.Fate fate, Then then) {
        Asks asks = answer -> server.ask(claim, question, fate, answer);
        return new Request(core, server, claim.key(), asks, true, each, until, fate, then);
    }

    /** Asks for what changes nothing. */
    static Request read(Core core, Link link, byte[] key, List<byte[]> words, long each, long until, Then then) {
        Asks asks = answer -> link.say(key, words, Grantor.NO_MATTER, answer);
        return new Request(core, link, key, asks, false, each, until, Grantor.NO_MATTER, then);
    }

    @Override
    public void start() {
        asked = Clock.now();
        long limit = Math.min(Clock.add(asked, each), until);
        deadline = turn.at(limit, () -> overdue(limit));
        boolean[] isAnswered = new boolean[1];
        Grantor.Try made;
        try {
            made = asks.once((reply, error) -> {
                isAnswered[0] = true;
                arrived(reply, error);
            });
        } catch (LeaseholdException e) {
            deadline.cancel();
            finish(null, e);
            return;
        }
        // It may have been answered at once, and asked again.
        if (!isAnswered[0]) {
            current = made;
        }
    }

    @Override
    public void stop() {
        if (isOver) {
            return;
        }
        isOver = true;
        core.closes.remove(closed);
        if (current != null) {
            current.giveUp();
            if (current.isSent()) {
                unknown();
            }
        }
        if (deadline != null) {
            deadline.cancel();
        }
    }

    private void unknown() {
        fate.mayHold();
    }

    private void overdue(long limit) {
        // To connect may take longer than an answer.
        if (limit < until && current != null && !current.isSent()) {
            long next = Math.min(Clock.add(limit, each), until);
            deadline = turn.at(next, () -> overdue(next));
            return;
        }
        if (current != null) {
            current.giveUp();
            server.silent(current, each);
        }
        failed(Verdict.SILENT);
    }

    private void arrived(@Nullable Object reply, @Nullable Throwable error) {
        if (deadline != null) {
            deadline.cancel();
        }
        if (isOver) {
            return;
        }
        if (error != null) {
            failed(error);
            return;
        }
        try {
            Long number = isNumber ? number(reply) : null;
            Link.Line line = current == null ? null : current.line();
            finish(new Answer(reply, line, number == null ? 0 : number, isNumber && number == null, asked, isRepeated), null);
        } catch (LeaseholdException e) {
            unknown();
            finish(null, e);
        }
    }

    private void failed(Throwable error) {
        boolean wasSent = current == null || current.isSent();
        current = null;
        Verdict means = Verdict.of(error);
        if (means == Verdict.BROKEN && wasSent) {
            isRepeated = true;
            unknown();
        }
        if (!isNumber && means == Verdict.UNKNOWN_COMMAND) {
            finish(null, server.told(error));
            return;
        }
        if (server.learns(key, error) && tries < MOST_WORDS) {
            tries++;
            start();
            return;
        }
        if (means == Verdict.ELSEWHERE) {
            server.moved();
        }
        long resting = Clock.Rest.RETRY.after(tries++);
        if (means == Verdict.REFUSED || Clock.left(until) <= resting) {
            finish(null, server.told(error));
        } else if (core.hasClosed()) {
            closed();
        } else {
            core.closes.add(closed);
            deadline = turn.at(Clock.now() + resting, () -> {
                core.closes.remove(closed);
                start();
            });
        }
    }

    private void closed() {
        if (deadline != null) {
            deadline.cancel();
        }
        finish(null, new LeaseholdException.Closed());
    }

    private void finish(@Nullable Answer answer, @Nullable LeaseholdException error) {
        isOver = true;
        then.came(answer, error);
    }

    /** Nobody knows what the server did if its reply is none of those to the command. */
    static @Nullable Long number(@Nullable Object reply) {
        if (reply == null) {
            return null;
        }
        if (reply instanceof Long number) {
            return number;
        }
        if (reply instanceof byte[] digits) {
            try {
                return Long.parseLong(new String(digits, StandardCharsets.US_ASCII));
            } catch (NumberFormatException e) {
                throw new LeaseholdException.Refused("", "a reply that is no number");
            }
        }
        throw new LeaseholdException.Refused("", "a reply of an unexpected type");
    }
}
