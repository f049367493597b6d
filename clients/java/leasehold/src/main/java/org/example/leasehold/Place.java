package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;

/**
 * A place in the server's queue, from the first request for it until the lock is granted or nobody wants it any more. All is
 * done in turn.
 */
final class Place implements Attempt.Activity {
    private final Attempt attempt;
    private final Core core;
    private final Queue queue;
    private final String owner;
    private boolean isOver;
    /** What was asked last, until it is answered. */
    private @Nullable Ticket current;
    /** When it is to be asked for again, or an answer is overdue. */
    private Turn.@Nullable Deadline deadline;
    /** What told of grants when it was last asked for. */
    private Queue.@Nullable Ear ear;
    /** It has a place, and sleeps until it is told something. */
    private boolean isAsleep;
    /** Before the last request that was answered with nil, or the first one. */
    private long since = -1;
    /** The shortest time for which a request since then keeps it, and for how long the latest does. */
    private long kept = Clock.NEVER;

    private long keeps;
    /** The last request was answered with nil. */
    private boolean isNil;
    /** A message may be that of an earlier grant. */
    private boolean isUnsure;
    /** What a message told that nobody has looked at, and who heard it. */
    private long heard;

    private Queue.@Nullable Ear heardBy;
    private int failures;
    private long silentSince = -1;
    /** What the server said last, unless it has answered since. */
    private @Nullable Throwable refusal;

    private boolean isQueued;

    private record Ticket(long asked, long kept, Queue.@Nullable Ear heardBy, boolean isRenewal) {}

    Place(Attempt attempt) {
        this.attempt = attempt;
        this.core = attempt.core;
        this.queue = core.queue;
        this.owner = new String(attempt.claim.owner(), StandardCharsets.ISO_8859_1);
    }

    @Override
    public void start() {
        queue.enter(owner, this);
        ask();
    }

    @Override
    public void stop() {
        if (current != null) {
            attempt.mayHold();
        }
        end();
    }

    private void end() {
        isOver = true;
        current = null;
        isAsleep = false;
        if (giveUp != null) {
            giveUp.run();
            giveUp = null;
        }
        if (deadline != null) {
            deadline.cancel();
        }
        queue.leave(owner, this);
    }

    /** Gives up the request under way. */
    private @Nullable Runnable giveUp;

    private void granted(Attempt.@Nullable Grant grant) {
        end();
        attempt.granted(grant);
    }

    private void failed(LeaseholdException error) {
        end();
        attempt.fail(error);
    }

    /** The answer says whether it was granted, whatever was heard before. */
    private void ask() {
        long asked = Clock.now();
        if (asked >= attempt.until) {
            // The lock was busy, unless the server had no place.
            if (refusal != null) {
                failed(core.link.told(refusal));
            } else {
                granted(null);
            }
            return;
        }
        heard = 0;
        isNil = false;
        request(asked, false);
    }

    private void request(long asked, boolean isRenewal) {
        if (giveUp != null) {
            giveUp.run();
        }
        if (deadline != null) {
            deadline.cancel();
        }
        isAsleep = isRenewal;
        keeps = queue.kept();
        kept = Math.min(kept, keeps);
        if (since < 0) {
            since = asked;
        }
        Ticket ticket = new Ticket(asked, keeps, heard == 0 ? ear : null, isRenewal);
        ear = queue.ear();
        current = ticket;
        Claim.Question question = queue.question(attempt.ttl, keeps);
        Link.Call call = core.link.new Call(attempt.claim.words(question), attempt, (reply, error) -> arrived(ticket, reply, error));
        long limit = Math.min(Clock.add(asked, attempt.each), attempt.until);
        deadline = core.turn.at(limit, () -> overdue(ticket, call, limit));
        giveUp = call::giveUp;
        core.link.send(call);
    }

    private void overdue(Ticket ticket, Link.Call call, long limit) {
        if (current != ticket) {
            return;
        }
        // To connect may take longer than an answer.
        long next = Math.min(Clock.add(limit, attempt.each), attempt.until);
        if (limit < next && call.line() == null && next - ticket.asked < core.settings.unreachableAfter) {
            deadline = core.turn.at(next, () -> overdue(ticket, call, next));
            return;
        }
        if (limit < attempt.until) {
            core.link.silent(call.line());
        }
        call.giveUp();
        arrived(ticket, null, Verdict.SILENT);
    }

    private void arrived(Ticket ticket, @Nullable Object reply, @Nullable Throwable error) {
        if (current != ticket) {
            return;
        }
        current = null;
        giveUp = null;
        if (deadline != null) {
            deadline.cancel();
        }
        if (error != null) {
            refused(ticket, error);
            return;
        }
        attempt.mayHold();
        Long fence;
        try {
            fence = Request.number(reply);
        } catch (LeaseholdException e) {
            failed(e);
            return;
        }
        if (fence != null) {
            granted(new Attempt.Grant(fence, ticket.asked, attempt.ttl, false));
            if (ticket.heardBy != null) {
                // It should have told of the grant before.
                ticket.heardBy.end();
            }
            return;
        }
        answered(ticket);
    }

    /** It has a place. */
    private void answered(Ticket ticket) {
        failures = 0;
        silentSince = -1;
        refusal = null;
        isQueued = true;
        long lasts = Math.min(attempt.ttl, kept);
        long now = Clock.now();
        // A grant that nobody has heard of would still be there.
        if (now >= since + lasts - Clock.drift(lasts)) {
            isUnsure = true;
        }
        since = ticket.asked;
        kept = Math.min(ticket.kept, keeps);
        isNil = true;
        isAsleep = true;
        if (ear == null || ear != queue.ear()) {
            ear = null;
            queue.listen();
            sleep(queue.restUnheard());
            return;
        }
        long between = ticket.kept / Queue.KEPT_TIMES;
        sleep(between - ThreadLocalRandom.current().nextLong(between / 4 + 1));
        look();
    }

    private void sleep(long nanos) {
        if (deadline != null) {
            deadline.cancel();
        }
        deadline = core.turn.at(Math.min(Clock.now() + nanos, attempt.until), () -> {
            if (Clock.now() >= attempt.until || ear == null) {
                ask();
            } else {
                request(Clock.now(), true);
            }
        });
    }

    void hear(long fence, Queue.Ear by) {
        heard = fence;
        heardBy = by;
        look();
    }

    /** Takes the grant from the message, unless the answer to a request has to come first. */
    private void look() {
        if (heard == 0 || !isNil || isOver || !isAsleep) {
            return;
        }
        long lasts = Math.min(attempt.ttl, kept);
        // A server that was not heard when it was asked does not leave much time.
        boolean isLate = Clock.left(Clock.validUntil(since, lasts)) < lasts / 4;
        if (attempt.confirm || isUnsure || heardBy != ear || isLate) {
            ask();
        } else {
            attempt.mayHold();
            granted(new Attempt.Grant(heard, since, lasts, true));
        }
    }

    /** Grants are told of from now on. What was granted before was not told. */
    void isTold() {
        if (isAsleep && ear == null && !isOver) {
            ask();
        }
    }

    /** What was to be told is lost: so all ask, and not all at once. */
    void cut(Queue.Ear lost) {
        if (ear == lost && !isOver) {
            ear = null;
            if (isAsleep && current == null) {
                sleep(ThreadLocalRandom.current().nextLong(queue.spread()));
            }
        }
    }

    private void refused(Ticket ticket, Throwable error) {
        Verdict means = Verdict.of(error);
        if (means == Verdict.BROKEN) {
            attempt.mayHold();
        }
        if (core.link.learns(error) || queue.learns(error)) {
            if (core.link.isPlain()) {
                end();
                attempt.ask();
            } else {
                ask();
            }
            return;
        }
        if (ticket.isRenewal) {
            ask();
            return;
        }
        if (means == Verdict.REFUSED) {
            failed(core.link.told(error));
            return;
        }
        if (means == Verdict.ELSEWHERE) {
            core.link.moved();
        }
        if (means == Verdict.BROKEN) {
            refusal = null;
            silentSince = silentSince < 0 ? ticket.asked : silentSince;
        } else {
            refusal = error;
            silentSince = -1;
        }
        if (silentSince >= 0 && Clock.now() - silentSince >= core.settings.unreachableAfter) {
            failed(core.link.told(error));
            return;
        }
        boolean isFull = "QUEUEFULL".equals(Verdict.code(error));
        long resting = (isFull ? Clock.Rest.FULL : Clock.Rest.RETRY).after(failures++);
        boolean hasTime = resting < Clock.left(attempt.until);
        deadline = core.turn.at(Math.min(Clock.now() + resting, attempt.until), () -> {
            if (hasTime) {
                ask();
            } else if (isQueued && means == Verdict.BROKEN && attempt.until - ticket.asked < attempt.each) {
                // It was busy when the server had time to answer.
                granted(null);
            } else {
                failed(core.link.told(error));
            }
        });
    }
}
