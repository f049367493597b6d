package org.example.leasehold;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/**
 * Has replicas acknowledge a grant. {@code WAIT} stops all that comes behind it, and counts what was written on its own
 * connection: so the grant is written once more, on a connection of its own, in one round trip with the wait. All is done in
 * turn.
 */
final class Acknowledged implements Attempt.Activity {
    /**
     * What is wanted of replicas.
     *
     * @param isDurable whether they and the server have it on disk, too: {@code WAITAOF}
     */
    record Replicas(int count, long within, boolean isDurable) {}

    private final Attempt attempt;
    private final Attempt.Grant grant;
    private final Replicas wanted;
    private final Link link;
    private final long asked = Clock.now();
    private @Nullable CompletableFuture<Link.Line> opening;
    private Turn.@Nullable Deadline deadline;
    private boolean isOver;

    Acknowledged(Attempt attempt, Attempt.Grant grant, Replicas wanted) {
        this.attempt = attempt;
        this.grant = grant;
        this.wanted = wanted;
        this.link = attempt.core.link();
    }

    @Override
    public void start() {
        long limit = Clock.add(asked, wanted.within + attempt.core.settings.response);
        deadline = attempt.core.turn.at(limit, () -> fail(link.told(Verdict.SILENT)));
        opening = link.dedicated(attempt.claim.key());
        opening.whenComplete((line, error) -> {
            if (line != null) {
                ask(line);
            } else if (error != null) {
                fail(link.told(error));
            }
        });
    }

    private void ask(Link.Line line) {
        byte[] key = attempt.claim.key();
        Claim.Question question = Claim.Question.extend(attempt.ttl, grant.fence());
        List<byte[]> extend = link.isPlain(key) ? Script.EXTEND.words(attempt.claim, question, false) : attempt.claim.words(question);
        line.say(key, extend, (reply, error) -> {
            if (error != null) {
                fail(link.told(error));
            } else if (!Long.valueOf(1).equals(reply)) {
                fail(new LeaseholdException.Lost(attempt.name, Loss.TAKEN, null));
            }
        });
        byte[] within = Claim.millis(wanted.within);
        List<byte[]> wait = wanted.isDurable ? Words.of("WAITAOF", 1, wanted.count, within) : Words.of("WAIT", wanted.count, within);
        line.say(key, wait, (reply, error) -> {
            if (error != null) {
                fail(link.told(error));
                return;
            }
            List<?> both = reply instanceof List<?> list && list.size() == 2 ? list : List.of(1L, reply instanceof Long count ? count : 0L);
            if (both.get(0).equals(0L) || !(both.get(1) instanceof Long count) || count < wanted.count) {
                int found = both.get(1) instanceof Long some ? some.intValue() : 0;
                fail(new LeaseholdException.TooFewReplicas(attempt.name, found, wanted.count));
            } else if (Clock.now() >= Clock.validUntil(asked, attempt.ttl)) {
                fail(new LeaseholdException.TooLate());
            } else if (end()) {
                attempt.succeed(new Attempt.Grant(grant.fence(), asked, attempt.ttl, false));
            }
        });
    }

    private void fail(LeaseholdException error) {
        if (end()) {
            attempt.fail(error);
        }
    }

    private boolean end() {
        if (isOver) {
            return false;
        }
        isOver = true;
        if (deadline != null) {
            deadline.cancel();
        }
        if (opening != null && !opening.cancel(false) && !opening.isCompletedExceptionally()) {
            opening.join().end(Verdict.SILENT);
        }
        return true;
    }

    @Override
    public void stop() {
        end();
    }
}
