package org.example.leasehold;

import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** A lock that is held: it is renewed until it is released or lost. All is done in turn. */
final class Hold {
    private static final System.Logger LOGGER = System.getLogger(Leasehold.class.getName());

    final Attempt attempt;
    volatile long fence;
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
    /** An upgrade is not answered: the server may have it by another fence. */
    private boolean isUnsure;

    private Runnable unbind = () -> {};
    /** Its bond has ended, or is put aside, and another one is asked for. */
    private boolean isUnbound;
    /** The last change of its share. */
    private CompletableFuture<Boolean> sharing = CompletableFuture.completedFuture(true);
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
        bind();
        watch();
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
            renew(ttl);
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

    private void renew(long by) {
        boolean binds = isUnbound;
        extend(by, validUntil, binds, error -> {
            if (error == null || !look()) {
                return;
            }
            boolean isFinal = Verdict.isFinal(error);
            if (isFinal && failure == null) {
                warn("a renewal was refused", error);
            }
            failure = error;
            // What is refused now, such as a password that is being changed, may be done before the lease is over.
            if (by == ttl) {
                renewAt = Clock.now() + Clock.Rest.RETRY.after(isFinal ? 4 : 0);
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
        extend(by, Math.min(validUntil, Clock.add(Clock.now(), core.settings.within)), false, error -> {
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

    /** Without the module no fence changes, and each is asked for by its own. */
    private long sureFence() {
        return isUnsure && !core.server.isPlain(attempt.claim.key()) ? 0 : fence;
    }

    /** Whether it is this grant: an upgrade that was not heard of has a larger fence. */
    private boolean isIts(Request.Answer answer) {
        boolean is = !answer.isNil() && (answer.number() == fence || isUnsure && answer.number() > fence);
        if (is) {
            fence = answer.number();
        }
        return is;
    }

    /** Whether the holder has another fence than this by now, or may have. */
    boolean mayDiffer(long fence) {
        return isUnsure || fence != this.fence;
    }

    /** The server has said that this owner holds it by this fence. */
    void hears(long fence) {
        this.fence = Math.max(this.fence, fence);
    }

    /** Asks until then. To bind it again is to acquire it again. */
    private void extend(long by, long until, boolean binds, Then then) {
        int number = extensions.begin(by);
        long asked = sureFence();
        asking++;
        // The server may have it end as early as that from now on, whether or not that is heard of.
        expect(by);
        Claim.Question question = binds ? Claim.Question.acquire(by) : Claim.Question.extend(by, asked);
        request(attempt.claim, question, until, binds, (answer, error) -> {
            asking--;
            // It has another fence by now, or may have.
            boolean isOther = !binds && (isUnsure || asked != fence);
            if (!look()) {
                then.came(lost());
            } else if (answer == null) {
                then.came(error);
            } else if (answer.number() == 0 && isOther && asked != 0) {
                extend(by, until, false, then);
            } else if (binds ? !isIts(answer) : answer.number() != 1) {
                lose(Loss.TAKEN);
                // A later grant of the same owner is nobody's.
                if (binds) {
                    attempt.late();
                }
                then.came(lost());
            } else {
                if (binds) {
                    bind();
                }
                extended(number, answer, by);
                then.came(look() ? null : lost());
            }
        });
    }

    private void expect(long by) {
        validUntil = Math.min(validUntil, Clock.validUntil(Clock.now(), by));
        watch();
    }

    private void request(Claim claim, Claim.Question question, long until, boolean acquires, Request.Then then) {
        Grantor.Fate told = acquires ? attempt : Grantor.NO_MATTER;
        Request.about(core, core.server, claim, question, each(question.ttl() > 0 ? question.ttl() : ttl), until, told, then).start();
    }

    CompletableFuture<Void> extendBy(long nanos) {
        return extend(Clock.add(validFor() + Clock.drift(ttl), nanos));
    }

    /**
     * Has another share of it: by a new fence if that is tighter. False: there are too many others for that. The server is asked
     * each time, since what it was last heard to have may be what it has no more; and for one change at a time.
     */
    CompletableFuture<Boolean> share(int share) {
        CompletableFuture<Boolean> done = new CompletableFuture<>();
        CompletableFuture<Boolean> former = sharing;
        sharing = done;
        former.whenComplete((is, error) -> core.turn.take(() -> share(share, done)));
        return done;
    }

    private void share(int share, CompletableFuture<Boolean> done) {
        if (!look()) {
            core.turn.after(() -> done.completeExceptionally(lost()));
            return;
        }
        if (core.server instanceof Majority) {
            // There it is shared by nobody.
            core.turn.after(() -> done.complete(true));
            return;
        }
        boolean isUpgrade = share == Claim.EXCLUSIVE;
        boolean wasUnsure = isUnsure;
        isUnsure |= isUpgrade;
        Claim as = attempt.claim.sharing(share);
        long until = Math.min(validUntil, Clock.add(Clock.now(), core.settings.within));
        request(as, Claim.Question.acquire(ttl), until, true, (answer, error) -> {
            if (answer != null && look()) {
                if (answer.isNil() && isUpgrade) {
                    // An earlier try may still be carried out.
                    isUnsure = wasUnsure || answer.isRepeated();
                    core.turn.after(() -> done.complete(false));
                    return;
                }
                if (!isIts(answer)) {
                    lose(Loss.TAKEN);
                    attempt.late();
                } else {
                    isUnsure &= !isUpgrade;
                    attempt.claim = as;
                    isUnclaimed = false;
                    bind();
                    core.turn.after(() -> done.complete(true));
                    return;
                }
            }
            LeaseholdException because = look() ? error : lost();
            core.turn.after(() -> done.completeExceptionally(because));
        });
    }

    private void bind() {
        isUnbound = false;
        unbind.run();
        if (attempt.bond != null && attempt.claim.grace() >= 0) {
            unbind = attempt.bond.whenEnded(this::bindAgain);
        }
    }

    /** Asked for within the grace, it is bound to another connection. One that is not renewed lasts no longer for that. */
    private void bindAgain() {
        if (!look()) {
            return;
        }
        long by = Clock.now() < renewUntil ? ttl : validFor();
        if (attempt.bond != null && attempt.bond.isOpen()) {
            // The server may have ended it. If not, it is bound to that until it is bound to another.
            bind();
        } else {
            expect(attempt.claim.grace());
        }
        isUnbound = true;
        if (look()) {
            renew(by);
        }
    }

    /** Nobody has its lease any more. What is not renewed ends by itself. */
    void forgotten() {
        if (!lost.isDone()) {
            core.turn.take(() -> {
                if (look() && Clock.now() < renewUntil) {
                    warn("the lease was dropped, and is released", null);
                    release();
                }
            });
        }
    }

    /** Stops the renewal, and leaves the lock to its lease. */
    void leave() {
        if (!look()) {
            return;
        }
        isReleased = true;
        Claim.Question claimed = Claim.Question.extend(ttl, fence);
        if (isUnclaimed) {
            // Otherwise it would not stay for its ttl.
            core.finish(attempt.name, attempt.claim, claimed, ttl);
        }
        settle(Outcome.LATER, null);
        end(new LeaseholdException.Lost(attempt.name, Loss.RELEASED, null));
        core.drop(this);
    }

    private void extended(int number, Request.Answer answer, long by) {
        agreed = by;
        isUnclaimed = false;
        failure = null;
        long counted = extensions.counted(number, answer.isRepeated(), by);
        if (counted >= 0) {
            validUntil = Clock.validUntil(answer.asked(), counted);
        }
        long left = Math.max(0, validUntil - Clock.now());
        // It may count for less than its ttl, and is renewed in time for that.
        renewAt = Math.min(renewal(answer.asked(), ttl), renewal(Clock.now(), left));
        watch();
        attempt.tell(LockEvent.Step.RENEWED, fence, null, null);
    }

    /** It is not held any more, and nobody has given it up. */
    void lose(Loss loss) {
        LeaseholdException because = loss == Loss.EXPIRED ? failure : null;
        if (because == null && asking > 0 && loss == Loss.EXPIRED) {
            because = core.server.told(Verdict.SILENT);
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
        attempt.tell(LockEvent.Step.LOST, fence, loss, error);
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
        unbind.run();
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
        if (loss == Loss.TAKEN && isSingle && !isUnsure) {
            // The server has said so.
            settle(Outcome.LATE, null);
            return released;
        }
        boolean wasLost = loss == Loss.EXPIRED || loss == Loss.TAKEN;
        core.hold(this);
        // A message may have been forged: then the owner has a place in the queue, which only this gives back.
        long known = isUnclaimed ? 0 : sureFence();
        boolean isKept = holdUntil > begun && !wasLost;
        Claim.Question question = isKept ? Claim.Question.extend(holdUntil - begun, known == 0 ? fence : known) : Claim.Question.release(known);
        if (!isKept) {
            attempt.over();
        }
        long all = isKept ? 1 : attempt.claim.keys().size();
        long until = Clock.add(begun, core.settings.within);
        core.begin(attempt.name, attempt.claim);
        Claim claim = attempt.claim;
        request(claim, question, until, false, (answer, error) -> {
            core.end(attempt.name, claim);
            if (!isKept) {
                attempt.lastWords();
            }
            if (answer == null) {
                core.stays(attempt.name, end);
            }
            core.drop(this);
            if (answer == null) {
                warn("a release failed, and the lock stays until its lease ends", error);
                settle(null, error);
                return;
            }
            // An earlier try may have been heard and its answer lost. Before the end of the lease nobody else had the lock.
            boolean isInTime = answer.number() == all || answer.isRepeated() && answer.asked() < end;
            Outcome outcome = wasLost || !isInTime ? Outcome.LATE : isKept ? Outcome.LATER : Outcome.RELEASED;
            settle(outcome, null);
        });
        return released;
    }

    private void settle(@Nullable Outcome outcome, @Nullable LeaseholdException error) {
        attempt.tell(LockEvent.Step.RELEASED, fence, outcome, error);
        core.turn.after(() -> Futures.<@Nullable Outcome>complete(released, outcome, error));
    }

    private void warn(String what, @Nullable LeaseholdException error) {
        String why = error == null ? "" : ": " + error.getMessage();
        core.turn.tell(() -> LOGGER.log(System.Logger.Level.WARNING, "{0}: {1}{2}", attempt.name, what, why));
    }
}
