package org.example.leasehold;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ThreadLocalRandom;
import org.jspecify.annotations.Nullable;

/**
 * A place in the server's queue, from the first request for it until the lock is granted or nobody wants it any more. All is
 * done in turn.
 */
final class Place implements Attempt.Activity {
    private final Attempt attempt;
    private final Core core;
    private final Link link;
    private final Queue queue;
    /** The length of the owner, the owner and the key, as a message has them. */
    final String name;

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
    /** One of the connections that may wait is this one's. */
    private boolean hasRoom;
    private Link.@Nullable Line blocked;
    /** The request under way. */
    private Link.@Nullable Call call;

    /**
     * What was asked.
     *
     * @param deaf what should have told of a grant before, and has not
     */
    private record Ticket(long asked, long kept, Claim.Question question, Queue.@Nullable Ear deaf, boolean isRenewal) {}

    Place(Attempt attempt, Link link) {
        this.attempt = attempt;
        this.core = attempt.core;
        this.link = link;
        this.queue = link.queue;
        this.isUnsure = attempt.isUnsure();
        byte[] owner = attempt.claim.owner();
        this.name = owner.length + " " + Script.text(owner) + " " + Script.text(attempt.claim.key());
    }

    @Override
    public void start() {
        queue.enter(this);
        ask();
    }

    @Override
    public void stop() {
        if (current != null && (call == null || call.isSent())) {
            attempt.mayHold();
        }
        end();
    }

    private void end() {
        if (isOver) {
            return;
        }
        isOver = true;
        current = null;
        isAsleep = false;
        if (call != null) {
            call.giveUp();
            call = null;
        }
        if (deadline != null) {
            deadline.cancel();
        }
        queue.leave(this);
        if (blocked != null) {
            blocked.end(Verdict.SILENT);
        }
        if (hasRoom) {
            queue.leaveRoom();
        }
    }

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
                failed(link.told(refusal));
            } else {
                granted(null);
            }
            return;
        }
        Queue.Ear deaf = heard == 0 ? ear : null;
        heard = 0;
        isNil = false;
        request(asked, false, deaf);
    }

    private void request(long asked, boolean isRenewal, Queue.@Nullable Ear deaf) {
        if (call != null) {
            call.giveUp();
            call = null;
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
        Claim.Question question = queue.question(attempt.ttl, keeps);
        Ticket ticket = new Ticket(asked, keeps, question, deaf, isRenewal);
        ear = queue.ear(link.placeOf(attempt.claim.key()));
        current = ticket;
        Link.Call[] sent = new Link.Call[1];
        sent[0] = link.inCommands(attempt.claim, question, attempt, (reply, error) -> arrived(ticket, sent[0], reply, error));
        if (current == ticket) {
            call = sent[0];
            long limit = Math.min(Clock.add(asked, attempt.each), attempt.until);
            deadline = core.turn.at(limit, () -> overdue(ticket, sent[0], limit));
        }
    }

    private void overdue(Ticket ticket, Link.Call call, long limit) {
        if (current != ticket) {
            return;
        }
        // To connect may take longer than an answer.
        long next = Math.min(Clock.add(limit, attempt.each), attempt.until);
        if (limit < next && !call.isSent() && next - ticket.asked < core.settings.unreachableAfter) {
            deadline = core.turn.at(next, () -> overdue(ticket, call, next));
            return;
        }
        call.giveUp();
        link.silent(call, attempt.each);
        arrived(ticket, call, null, Verdict.SILENT);
    }

    private void arrived(Ticket ticket, Link.@Nullable Call call, @Nullable Object reply, @Nullable Throwable error) {
        if (current != ticket) {
            return;
        }
        current = null;
        this.call = null;
        if (deadline != null) {
            deadline.cancel();
        }
        if (error != null) {
            refused(ticket, call == null || call.isSent(), error);
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
            if (ticket.deaf != null && heard == 0) {
                // It should have told of the grant before.
                ticket.deaf.end();
            }
            return;
        }
        answered(ticket, call == null || call.line() == null ? null : call.line().place);
    }

    /** It has a place. */
    private void answered(Ticket ticket, @Nullable String node) {
        failures = 0;
        silentSince = -1;
        refusal = null;
        isQueued = true;
        attempt.queued();
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
        if (ear == null || ear != queue.ear(node)) {
            ear = null;
            if (node != null) {
                queue.listen(node);
            }
            if (!queue.isMute() || !waitsOnConnection()) {
                sleep(queue.restUnheard());
            }
            return;
        }
        long between = ticket.kept / Queue.KEPT_TIMES;
        sleep(between - ThreadLocalRandom.current().nextLong(between / 4 + 1));
        look();
    }

    /**
     * Whoever is told of no grants waits on a connection, for a slice at a time: it takes the place over from the ticket, and
     * the next ticket takes it back. Whatever comes of it, the next request tells.
     */
    private boolean waitsOnConnection() {
        if (!hasRoom && !queue.makesRoom()) {
            return false;
        }
        hasRoom = true;
        Link.Line former = blocked;
        blocked = null;
        CompletableFuture<Link.Line> opening = link.dedicated(attempt.claim.key());
        sleep(Math.min(core.settings.slice, attempt.each));
        Turn.Deadline opens = deadline;
        opening.whenComplete((line, error) -> {
            if (former != null) {
                former.end(Verdict.SILENT);
            }
            if (line == null) {
                return;
            }
            if (isOver || deadline != opens || current != null) {
                line.end(Verdict.SILENT);
                return;
            }
            blocked = line;
            attempt.wasCut = true;
            sleep(core.settings.slice);
            Turn.Deadline waits = deadline;
            Claim.Question question = Claim.Question.await(attempt.ttl, Queue.KEPT_TIMES * core.settings.slice + attempt.each);
            line.say(attempt.claim.key(), attempt.claim.words(question), (reply, failed) -> {
                if (isOver || deadline != waits || current != null) {
                    return;
                }
                if (failed == null) {
                    attempt.wasCut = false;
                    ask();
                } else {
                    sleep(queue.restUnheard());
                }
            });
        });
        return true;
    }

    private void sleep(long nanos) {
        if (deadline != null) {
            deadline.cancel();
        }
        deadline = core.turn.at(Math.min(Clock.now() + nanos, attempt.until), () -> {
            if (Clock.now() >= attempt.until || ear == null) {
                ask();
            } else {
                request(Clock.now(), true, heard == 0 ? ear : null);
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

    private void refused(Ticket ticket, boolean wasSent, Throwable error) {
        Verdict means = Verdict.of(error);
        if (means == Verdict.BROKEN && wasSent) {
            attempt.mayHold();
        }
        // What was asked in the words that it is asked in now would be refused again.
        if (link.learns(attempt.claim.key(), error) || queue.learns(error) && !ticket.question.equals(queue.question(attempt.ttl, queue.kept()))) {
            if (link.isPlain(attempt.claim.key())) {
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
            failed(link.told(error));
            return;
        }
        if (means == Verdict.ELSEWHERE) {
            link.moved();
        }
        if (means == Verdict.BROKEN) {
            refusal = null;
            silentSince = silentSince < 0 ? ticket.asked : silentSince;
        } else {
            refusal = error;
            silentSince = -1;
        }
        if (silentSince >= 0 && Clock.now() - silentSince >= core.settings.unreachableAfter) {
            failed(link.told(error));
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
                failed(link.told(error));
            }
        });
    }
}
