package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import org.jspecify.annotations.Nullable;

/**
 * A question, asked until there is an answer or no more time. Every question may be asked twice: the same owner gets the same
 * grant, and whoever is not the holder changes nothing.
 */
final class Request implements Attempt.Activity {
    /**
     * A number, or nil, and when the try was made that was answered.
     *
     * @param isRepeated an earlier try may have been heard too
     */
    record Answer(long number, boolean isNil, long asked, boolean isRepeated) {}

    /** Exactly one of the two is given. */
    interface Then {
        void came(@Nullable Answer answer, @Nullable LeaseholdException error);
    }

    /** So often it is asked at once in other words. */
    private static final int MOST_WORDS = 2;

    private final Core core;
    private final Claim claim;
    private final Claim.Question question;
    private final long each;
    private final long until;
    private final @Nullable Attempt attempt;
    private final Then then;
    private int tries;
    private long asked;
    private boolean isRepeated;
    private boolean isOver;
    private Link.@Nullable Call call;
    private Turn.@Nullable Deadline deadline;

    /** The attempt, if there is one, is told what may have been heard and was not answered. */
    Request(Core core, Claim claim, Claim.Question question, long each, long until, @Nullable Attempt attempt, Then then) {
        this.core = core;
        this.claim = claim;
        this.question = question;
        this.each = each;
        this.until = until;
        this.attempt = attempt;
        this.then = then;
    }

    @Override
    public void start() {
        asked = Clock.now();
        long limit = Math.min(Clock.add(asked, each), until);
        Words words;
        try {
            words = core.link.words(claim, question);
        } catch (LeaseholdException e) {
            finish(null, e);
            return;
        }
        deadline = core.turn.at(limit, () -> overdue(limit));
        Link.Call mine = core.link.new Call(words, attempt, (reply, error) -> arrived(words, reply, error));
        call = mine;
        core.link.send(mine);
    }

    @Override
    public void stop() {
        if (isOver) {
            return;
        }
        isOver = true;
        if (call != null) {
            call.giveUp();
            unknown();
        }
        if (deadline != null) {
            deadline.cancel();
        }
    }

    private void unknown() {
        if (attempt != null) {
            attempt.mayHold();
        }
    }

    private void overdue(long limit) {
        // To connect may take longer than an answer.
        if (limit < until && call != null && call.line() == null) {
            long next = Math.min(Clock.add(limit, each), until);
            deadline = core.turn.at(next, () -> overdue(next));
            return;
        }
        if (call != null) {
            call.giveUp();
            if (limit < until) {
                core.link.silent(call.line());
            }
        }
        failed(Verdict.SILENT);
    }

    private void arrived(Words words, @Nullable Object reply, @Nullable Throwable error) {
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
        core.link.answered(words, question);
        try {
            Long number = number(reply);
            finish(new Answer(number == null ? 0 : number, number == null, asked, isRepeated), null);
        } catch (LeaseholdException e) {
            unknown();
            finish(null, e);
        }
    }

    private void failed(Throwable error) {
        call = null;
        Verdict means = Verdict.of(error);
        if (means == Verdict.BROKEN) {
            isRepeated = true;
            unknown();
        }
        if (core.link.learns(error) && tries < MOST_WORDS) {
            tries++;
            start();
            return;
        }
        if (means == Verdict.ELSEWHERE) {
            core.link.moved();
        }
        long resting = Clock.Rest.RETRY.after(tries++);
        if (means == Verdict.REFUSED || Clock.left(until) <= resting) {
            finish(null, core.link.told(error));
        } else {
            deadline = core.turn.at(Clock.now() + resting, this::start);
        }
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
