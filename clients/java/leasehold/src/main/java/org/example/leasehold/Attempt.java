package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * One try to get a lock, which has an owner of its own. All is done in turn.
 *
 * <p>Whoever gives up half-way, for whatever reason, gives back what the server may have granted or may still grant: no place
 * in the queue and no lock stays behind.
 */
final class Attempt implements Grantor.Fate {
    /** What an attempt does at the moment. */
    interface Activity {
        void start();

        /** Does nothing more, and tells nobody. */
        void stop();
    }

    /**
     * One act of giving, as far as this program knows of it.
     *
     * @param asked before the server was asked
     * @param lasts for how long it is held from then
     * @param isUnclaimed a message has told it, and the server does not know that somebody has heard it
     */
    record Grant(long fence, long asked, long lasts, boolean isUnclaimed) {}

    /** How long after it was closed here a connection may be read by the server. */
    static final long STRAY = 250_000_000;

    final Core core;
    final String name;
    Claim claim;
    final long ttl;
    final boolean confirm;
    final long until;
    final long each;
    /** Null if the lock was busy. */
    final CompletableFuture<@Nullable Hold> result = new CompletableFuture<>();
    /** The connection on which it was last asked for, if the hold is bound to that. */
    Link.@Nullable Line bond;
    /** A connection was closed while a request waited on it. */
    boolean wasCut;

    private final Options options;
    private final boolean waits;
    private final long begun = Clock.now();
    /** From when events are counted: the request, and later the grant. */
    private long since = begun;

    private boolean wasQueued;
    private final Set<Link.Line> unheard = new LinkedHashSet<>();
    private @Nullable Activity activity;
    private Turn.@Nullable Deadline resting;
    private int tries;
    private boolean mayHold;
    private boolean isDone;
    private boolean isOver;

    Attempt(Core core, String name, Claim claim, Options options, boolean waits) {
        Settings settings = core.settings;
        this.core = core;
        this.name = name;
        this.claim = claim;
        this.options = options;
        this.ttl = options.ttl >= 0 ? options.ttl : settings.ttl;
        this.confirm = options.confirm != null ? options.confirm : settings.confirm;
        long patience = !waits ? 0 : options.patience >= 0 ? options.patience : settings.patience;
        this.waits = patience > 0;
        this.until = Clock.add(begun, patience == 0 ? settings.within : patience);
        this.each = Clock.patienceForAnswer(settings.response, ttl);
    }

    long waited() {
        return Clock.now() - begun;
    }

    void start() {
        if (core.isClosed()) {
            fail(new LeaseholdException.Closed());
            return;
        }
        core.attempts.add(this);
        tell(LockEvent.Step.ASKED, 0, null, null);
        begin();
    }

    /** A release under way of whatever this owner had would hit what it is granted now. */
    private void begin() {
        if (core.isReturning(claim) && Clock.left(until) > 0) {
            resting = core.turn.at(Math.min(Clock.now() + Clock.Rest.POLL.after(0), until), this::begin);
        } else {
            next();
        }
    }

    void tell(LockEvent.Step step, long fence, @Nullable Enum<?> outcome, @Nullable LeaseholdException error) {
        Consumer<LockEvent> tells = core.settings.onEvent;
        if (tells != null) {
            String owner = new String(claim.owner(), StandardCharsets.UTF_8);
            Duration after = Duration.ofNanos(Clock.now() - since);
            String came = outcome == null ? null : outcome.name().toLowerCase(Locale.ROOT);
            LockEvent event = new LockEvent(step, name, owner, fence, after, came, error);
            core.turn.tell(() -> tells.accept(event));
        }
    }

    /** It has a place in the queue. */
    void queued() {
        if (!wasQueued) {
            wasQueued = true;
            tell(LockEvent.Step.QUEUED, 0, null, null);
        }
    }

    private void next() {
        if (core.server instanceof Majority || waits && !polls()) {
            begin(core.server.acquire(this));
        } else {
            ask();
        }
    }

    private boolean polls() {
        return !core.settings.queue || core.server.isPlain(claim.key());
    }

    boolean waits() {
        return waits;
    }

    private void begin(Activity next) {
        activity = next;
        next.start();
    }

    /** Asks without a place in the queue. */
    void ask() {
        // It was busy when the server had time to answer.
        boolean isLast = tries > 0 && Clock.left(until) < each;
        long limit = Math.min(until, Clock.add(Clock.now(), core.settings.unreachableAfter));
        begin(Request.about(core, core.server, claim, Claim.Question.acquire(ttl), each, limit, this, (answer, error) -> {
            if (answer == null) {
                if (isLast && error instanceof LeaseholdException.Unreachable) {
                    granted(null);
                } else {
                    fail(error);
                }
            } else if (answer.isNil()) {
                granted(null);
            } else {
                mayHold();
                granted(new Grant(answer.number(), answer.asked(), ttl, false));
            }
        }));
    }

    /** Null: others have it. */
    void granted(@Nullable Grant grant) {
        if (isDone) {
            return;
        }
        if (grant != null) {
            if (Clock.now() < Clock.validUntil(grant.asked, grant.lasts)) {
                acknowledge(grant);
            } else if (Clock.left(until) == 0) {
                fail(new LeaseholdException.TooLate());
            } else {
                // The answer took longer than the lease. Asked again, it is the same grant, or over.
                rest(Clock.Rest.RETRY);
            }
        } else if (!waits || Clock.left(until) == 0) {
            busy();
        } else if (polls()) {
            rest(Clock.Rest.POLL);
        } else {
            next();
        }
    }

    private void rest(Clock.Rest rests) {
        boolean isLate = Clock.left(until) == 0;
        long next = Math.min(Clock.now() + rests.after(tries++), until);
        resting = core.turn.at(next, () -> {
            if (isLate || Clock.left(until) == 0) {
                busy();
            } else {
                next();
            }
        });
    }

    private void acknowledge(Grant grant) {
        if (options.replicas == null) {
            succeed(grant);
        } else {
            begin(new Acknowledged(this, grant, options.replicas));
        }
    }

    void succeed(Grant grant) {
        if (isDone) {
            return;
        }
        long renewUntil = options.renewFor >= 0 ? Clock.add(grant.asked, options.renewFor) : Clock.NEVER;
        long holdUntil = options.holdAtLeast > 0 ? Clock.add(Clock.now(), options.holdAtLeast) : 0;
        Hold hold = new Hold(this, grant, renewUntil, holdUntil);
        done();
        tell(LockEvent.Step.GRANTED, grant.fence, null, null);
        since = Clock.now();
        hold.start();
        core.turn.after(() -> result.complete(hold));
    }

    /** It was held before, by this fence, and goes on. */
    void adopt(long fence) {
        if (core.isClosed()) {
            fail(new LeaseholdException.Closed());
            return;
        }
        core.attempts.add(this);
        begin(Request.about(core, core.server, claim, Claim.Question.extend(ttl, fence), each, until, Grantor.NO_MATTER, (answer, error) -> {
            boolean isHeld = answer != null && answer.number() == 1;
            if (isHeld) {
                succeed(new Grant(fence, answer.asked(), ttl, false));
            } else {
                fail(answer == null ? error : new LeaseholdException.Lost(name, Loss.TAKEN, null));
            }
        }));
    }

    private void busy() {
        if (!isDone) {
            done();
            giveUp();
            tell(LockEvent.Step.REFUSED, 0, null, null);
            core.turn.after(() -> result.complete(null));
        }
    }

    void fail(LeaseholdException error) {
        if (!isDone) {
            done();
            giveUp();
            tell(LockEvent.Step.REFUSED, 0, null, error);
            core.turn.after(() -> result.completeExceptionally(error));
        }
    }

    private void done() {
        isDone = true;
        if (waits && options.owner != null) {
            core.mayHear(claim);
        }
        core.attempts.remove(this);
        core.changed();
    }

    /** Nobody wants it any more, unless it was granted already. */
    void stop(LeaseholdException error) {
        if (isDone) {
            return;
        }
        if (activity != null) {
            activity.stop();
        }
        if (resting != null) {
            resting.cancel();
        }
        fail(error);
    }

    private void giveUp() {
        isOver = true;
        if (!mayHold) {
            return;
        }
        wasCut |= lastWords();
        core.giveBack(name, claim, ttl, 0);
        // The server may read what was said on another connection after it has read this, and grant the lock in between.
        if (wasCut || claim.grace() >= 0) {
            core.giveBack(name, claim, ttl, STRAY);
        }
    }

    /** It was granted, and is held no more. What a request that was not answered is granted now is nobody's. */
    void over() {
        isOver = true;
    }

    /** It was granted by a message, and nobody has claimed it. */
    void giveUpUnclaimed() {
        mayHold = true;
        giveUp();
    }

    /**
     * Where a server has not read the request yet, the release comes behind it. Close waits for the answers. Returns whether a
     * connection was cut.
     */
    boolean lastWords() {
        boolean isCut = false;
        List<Link.Line> lines = new ArrayList<>(unheard);
        unheard.clear();
        for (Link.Line line : lines) {
            core.expect(name);
            isCut |= !line.sayLast(claim, (reply, error) -> core.done(name)).isSent();
        }
        return isCut;
    }

    /** Whether a message may be that of an earlier grant to this owner. */
    boolean isUnsure() {
        return mayHold || core.heardOf(claim);
    }

    @Override
    public void mayHold() {
        mayHold = true;
    }

    @Override
    public void late() {
        if (isOver) {
            core.giveBack(name, claim, ttl, 0);
        }
    }

    @Override
    public void left(Link.Line line) {
        unheard.add(line);
        wasCut |= unheard.removeIf(each -> !each.isOpen());
    }

    @Override
    public void bound(Link.Line line) {
        bond = line;
    }
}
