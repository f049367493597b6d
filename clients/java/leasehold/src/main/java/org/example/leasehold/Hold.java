package org.example.leasehold;

import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A lock that is held: it is renewed until it is released or lost. All is done in turn. */
final class Hold {
    private static final System.Logger LOGGER = System.getLogger(Leasehold.class.getName());

    final Attempt attempt;
    final long fence;
    final CompletableFuture<LeaseholdException.Lost> lost = new CompletableFuture<>();

    private final Core core;
    private final long renewUntil;
    private final long holdUntil;
    private final Extensions extensions = new Extensions();
    private final CompletableFuture<Outcome> released = new CompletableFuture<>();
    private long validUntil;
    private long ttl;
    /** The ttl that the server has agreed to. */
    private long agreed;
    /** Never, while it is renewed. */
    private long renewAt = Clock.NEVER;

    private boolean isUnclaimed;
    private int asking;
    private boolean isReleased;
    private @Nullable LeaseholdException failure;
    private LeaseholdException.@Nullable Lost reason;
    private Turn.@Nullable Deadline deadline;

    Hold(Attempt attempt, Attempt.Grant grant, long renewUntil, long holdUntil) {
        this.attempt = attempt;
        this.core = attempt.core;
        this.fence = grant.fence();
        this.renewUntil = renewUntil;
        this.holdUntil = holdUntil;
        this.ttl = attempt.ttl;
        this.agreed = attempt.ttl;
        this.validUntil = Clock.validUntil(grant.asked(), grant.lasts());
        this.isUnclaimed = grant.isUnclaimed();
        this.renewAt = renewUntil < Clock.add(grant.asked(), ttl) && isUnclaimed
                // Who does not renew it claims it all the same, to have it for its ttl.
                ? Clock.now()
                : renewal(grant.asked(), grant.lasts());
    }

    void start() {
        core.hold(this);
        watch();
    }

    long validUntil() {
        return validUntil;
    }

    /** A lease is renewed after a third of it. */
    private long renewal(long asked, long lasts) {
        long next = Clock.add(asked, lasts / 3);
        return isUnclaimed || next < renewUntil ? next : Clock.NEVER;
    }

    private void watch() {
        if (deadline != null) {
            deadline.cancel();
        }
        if (reason == null) {
            deadline = core.turn.at(Math.min(renewAt, validUntil), this::due);
        }
    }

    private void due() {
        if (!look()) {
            return;
        }
        if (Clock.now() >= renewAt) {
            renewAt = Clock.NEVER;
            renew();
        }
        watch();
    }

    /** Whether it is held: looks at the clock. */
    boolean look() {
        if (reason == null && Clock.now() >= validUntil) {
            lose(Loss.EXPIRED);
        }
        return reason == null;
    }

    @Nullable Loss loss() {
        look();
        return reason == null ? null : reason.loss();
    }

    LeaseholdException.Lost lost() {
        return reason != null ? reason : new LeaseholdException.Lost(attempt.name, Loss.RELEASED, null);
    }

    long validFor() {
        return look() ? Clock.left(validUntil) : 0;
    }

    private long each(long ttl) {
        return Clock.patienceForAnswer(core.settings.response, ttl);
    }

    private void renew() {
        long by = ttl;
        extend(by, validUntil, error -> {
            if (error == null || !look()) {
                return;
            }
            failure = error;
            // Each further one would come to the same. The program may need what is left of the lease.
            if (Verdict.isFinal(error)) {
                warn("a renewal was refused", error);
            } else if (by == ttl) {
                renewAt = Clock.now() + Clock.Rest.RETRY.after(0);
                watch();
            }
        });
    }

    private interface Then {
        void came(@Nullable LeaseholdException error);
    }

    CompletableFuture<Void> extend(long by) {
        CompletableFuture<Void> done = new CompletableFuture<>();
        if (!look()) {
            core.turn.after(() -> done.completeExceptionally(lost()));
            return done;
        }
        ttl = by;
        renewAt = Clock.NEVER;
        extend(by, Math.min(validUntil, Clock.add(Clock.now(), core.settings.within)), error -> {
            if (error == null) {
                core.turn.after(() -> done.complete(null));
                return;
            }
            core.turn.after(() -> done.completeExceptionally(error));
            if (!look()) {
                return;
            }
            // To renew it by as much would be refused each time.
            if (error instanceof LeaseholdException.Refused && ttl == by) {
                ttl = agreed;
            }
            // It is held on, and may have little time left.
            if (Clock.now() < renewUntil) {
                renewAt = Clock.now();
                watch();
            }
        });
        return done;
    }

    /** Asks until then. */
    private void extend(long by, long until, Then then) {
        int number = extensions.begin(by);
        asking++;
        // The server may have it end as early as that from now on, whether or not that is heard of.
        validUntil = Math.min(validUntil, Clock.validUntil(Clock.now(), by));
        watch();
        new Request(core, attempt.claim, Claim.Question.extend(by, fence), each(by), until, null, (answer, error) -> {
            asking--;
            if (!look()) {
                then.came(lost());
            } else if (answer == null) {
                then.came(error);
            } else if (answer.number() != 1) {
                lose(Loss.TAKEN);
                then.came(lost());
            } else {
                extended(number, answer, by);
                then.came(look() ? null : lost());
            }
        }).start();
    }

    private void extended(int number, Request.Answer answer, long by) {
        agreed = by;
        isUnclaimed = false;
        failure = null;
        long counted = extensions.counted(number, answer.isRepeated(), by);
        if (counted >= 0) {
            validUntil = Clock.validUntil(answer.asked(), counted);
        }
        renewAt = renewal(answer.asked(), ttl);
        watch();
    }

    /** It is not held any more, and nobody has given it up. */
    private void lose(Loss loss) {
        LeaseholdException because = loss == Loss.EXPIRED ? failure : null;
        if (because == null && asking > 0 && loss == Loss.EXPIRED) {
            because = core.link.told(Verdict.SILENT);
        }
        LeaseholdException.Lost error = new LeaseholdException.Lost(attempt.name, loss, because);
        if (!end(error)) {
            return;
        }
        core.drop(this);
        if (isUnclaimed) {
            attempt.giveUpUnclaimed();
        } else {
            attempt.over();
            attempt.lastWords();
        }
        warn("a lock was lost", error);
    }

    private boolean end(LeaseholdException.Lost because) {
        if (reason != null) {
            return false;
        }
        reason = because;
        if (deadline != null) {
            deadline.cancel();
        }
        core.turn.after(() -> lost.complete(because));
        return true;
    }

    void shut() {
        look();
        end(new LeaseholdException.Lost(attempt.name, Loss.CLOSED, null));
    }

    /** Releases it once. Others who ask meanwhile are told the same. */
    CompletableFuture<Outcome> release() {
        if (isReleased) {
            return released;
        }
        isReleased = true;
        long begun = Clock.now();
        look();
        long end = validUntil;
        end(new LeaseholdException.Lost(attempt.name, Loss.RELEASED, null));
        Loss loss = lost().loss();
        boolean isSingle = attempt.claim.keys().size() == 1;
        if (loss == Loss.TAKEN && isSingle) {
            // The server has said so.
            core.turn.after(() -> released.complete(Outcome.LATE));
            return released;
        }
        boolean wasLost = loss == Loss.EXPIRED || loss == Loss.TAKEN;
        core.hold(this);
        // A message may have been forged: then the owner has a place in the queue, which only this gives back.
        long known = isUnclaimed ? 0 : fence;
        boolean isKept = holdUntil > begun && !wasLost;
        Claim.Question question = isKept ? Claim.Question.extend(holdUntil - begun, known == 0 ? fence : known) : Claim.Question.release(known);
        if (!isKept) {
            attempt.over();
        }
        long all = isKept ? 1 : attempt.claim.keys().size();
        long until = Clock.add(begun, core.settings.within);
        new Request(core, attempt.claim, question, each(ttl), until, null, (answer, error) -> {
            if (!isKept) {
                attempt.lastWords();
            }
            core.drop(this);
            if (answer == null) {
                warn("a release failed, and the lock stays until its lease ends", error);
                core.stays(attempt.name, end);
                core.turn.after(() -> released.completeExceptionally(error));
                return;
            }
            // An earlier try may have been heard and its answer lost. Before the end of the lease nobody else had the lock.
            boolean isInTime = answer.number() == all || answer.isRepeated() && answer.asked() < end;
            Outcome outcome = wasLost || !isInTime ? Outcome.LATE : isKept ? Outcome.LATER : Outcome.RELEASED;
            core.turn.after(() -> released.complete(outcome));
        }).start();
        return released;
    }

    private void warn(String what, LeaseholdException error) {
        core.turn.after(() -> LOGGER.log(System.Logger.Level.WARNING, "{0}: {1}: {2}", attempt.name, what, error.getMessage()));
    }
}
