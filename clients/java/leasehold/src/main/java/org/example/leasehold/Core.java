package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import org.jspecify.annotations.Nullable;

/** What a {@link Leasehold} has. All is done in turn. */
final class Core {
    private static final System.Logger LOGGER = System.getLogger(Leasehold.class.getName());
    private static final String PROCESS = ProcessHandle.current().pid() + ":";
    /** How often it is looked whether leases are over: a deadline that was set before the machine slept is late by as long. */
    private static final long LOOK_EVERY = 1_000_000_000;
    /** How long a message may be on its way. */
    private static final long LONGEST_WAY = 60_000_000_000L;

    final Turn turn = new Turn();
    final Settings settings;
    final Grantor server;
    final Set<Attempt> attempts = new LinkedHashSet<>();

    /** Those that are held, or whose release is under way. */
    private final Set<Hold> holds = new LinkedHashSet<>();
    /** The names of what is being given back by those who gave up. */
    private final Map<String, Integer> givingBack = new HashMap<>();
    /** Of whom, and which lock. */
    private final Map<List<String>, Integer> returning = new HashMap<>();
    /** Who has waited for which lock by a name of its own, and until when a message may come of that. */
    private final Map<List<String>, Long> former = new HashMap<>();
    /** The names of the locks whose release has failed, and until when they stay. */
    private final Map<String, Long> staying = new HashMap<>();

    /** What ends with this: what is under way on no connection, too. */
    final Set<Runnable> closes = new LinkedHashSet<>();

    private boolean looks;
    private @Nullable CompletableFuture<List<String>> closing;
    private boolean hasClosed;

    Core(Connector connector, Settings settings) {
        this.settings = settings;
        this.server = new Link(this, connector, false);
    }

    /** Most of several servers. */
    Core(List<? extends Connector> connectors, Settings settings) {
        this.settings = settings;
        List<Link> peers = new ArrayList<>();
        connectors.forEach(each -> peers.add(new Link(this, each, true)));
        this.server = new Majority(this, peers);
    }

    /** For what needs one server that has the lock. */
    Link link() {
        if (server instanceof Link link) {
            return link;
        }
        throw new IllegalArgumentException("a quorum has no one server for this");
    }

    static byte[] newOwner() {
        return (PROCESS + UUID.randomUUID().toString().replace("-", "")).getBytes(StandardCharsets.US_ASCII);
    }

    boolean isClosed() {
        return closing != null;
    }

    boolean hasClosed() {
        return hasClosed;
    }

    private static List<String> of(Claim claim) {
        return List.of(Script.text(claim.owner()), Script.text(claim.key()));
    }

    /** Whether something is under way that releases whatever the owner has. */
    boolean isReturning(Claim claim) {
        return returning.containsKey(of(claim));
    }

    void mayHear(Claim claim) {
        former.values().removeIf(until -> Clock.left(until) == 0);
        former.put(of(claim), Clock.now() + LONGEST_WAY);
    }

    boolean heardOf(Claim claim) {
        return Clock.left(former.getOrDefault(of(claim), 0L)) > 0;
    }

    void hold(Hold hold) {
        holds.add(hold);
        lookAfter();
    }

    private void lookAfter() {
        if (!looks && !holds.isEmpty()) {
            looks = true;
            turn.at(Clock.now() + LOOK_EVERY, () -> {
                looks = false;
                List.copyOf(holds).forEach(Hold::look);
                lookAfter();
            });
        }
    }

    void drop(Hold hold) {
        holds.remove(hold);
        changed();
    }

    /** Releases whatever the owner has, after so long: whoever gave up does not wait for it. Close does. */
    void giveBack(String name, Claim claim, long ttl, long after) {
        begin(name, claim);
        if (after > 0) {
            turn.at(Clock.now() + after, () -> giveBack(name, claim, ttl));
        } else {
            giveBack(name, claim, ttl);
        }
    }

    private void giveBack(String name, Claim claim, long ttl) {
        tell(name, claim, Claim.Question.release(0), ttl);
    }

    /** Sees a request through that nobody waits for, except close. */
    void finish(String name, Claim claim, Claim.Question question, long ttl) {
        begin(name, claim);
        tell(name, claim, question, ttl);
    }

    /** Something that may release whatever the owner has is under way, until it ends. */
    void begin(String name, Claim claim) {
        expect(name);
        returning.merge(of(claim), 1, Integer::sum);
    }

    void end(String name, Claim claim) {
        returning.computeIfPresent(of(claim), (key, count) -> count == 1 ? null : count - 1);
        done(name);
    }

    /** Close waits for something about a lock, until it is done. */
    void expect(String name) {
        givingBack.merge(name, 1, Integer::sum);
    }

    void done(String name) {
        givingBack.computeIfPresent(name, (key, count) -> count == 1 ? null : count - 1);
        changed();
    }

    private void tell(String name, Claim claim, Claim.Question question, long ttl) {
        long end = Clock.add(Clock.now(), ttl);
        long each = Clock.patienceForAnswer(settings.response, ttl);
        Request.about(this, server, claim, question, each, Clock.add(Clock.now(), settings.within), Grantor.NO_MATTER, (answer, error) -> {
            if (error != null) {
                stays(name, end);
                turn.tell(() -> LOGGER.log(
                        System.Logger.Level.WARNING, "{0}: a release failed, and the lock stays until its lease ends: {1}", name, error.getMessage()));
            }
            end(name, claim);
        }).start();
    }

    /** A release has failed, and the lock is there until then. */
    void stays(String name, long end) {
        staying.values().removeIf(until -> Clock.left(until) == 0);
        staying.merge(name, end, Math::max);
    }

    /** The names of the locks that could not be released. */
    CompletableFuture<List<String>> close(long limit) {
        if (closing != null) {
            return closing;
        }
        CompletableFuture<List<String>> left = new CompletableFuture<>();
        closing = left;
        turn.at(Clock.add(Clock.now(), limit), this::closed);
        List.copyOf(attempts).forEach(attempt -> attempt.stop(new LeaseholdException.Closed()));
        for (Hold hold : List.copyOf(holds)) {
            hold.shut();
            hold.release();
        }
        changed();
        return left;
    }

    /** Those who wait leave the queue, and what is answered may have to be given back, too. */
    void changed() {
        if (closing != null && holds.isEmpty() && givingBack.isEmpty() && attempts.isEmpty()) {
            closed();
        }
    }

    private void closed() {
        if (hasClosed || closing == null) {
            return;
        }
        hasClosed = true;
        CompletableFuture<List<String>> left = closing;
        staying.values().removeIf(until -> Clock.left(until) == 0);
        Set<String> names = new TreeSet<>(staying.keySet());
        names.addAll(givingBack.keySet());
        holds.forEach(hold -> names.add(hold.attempt.name));
        List.copyOf(closes).forEach(Runnable::run);
        server.close();
        turn.close();
        turn.after(() -> left.complete(new ArrayList<>(names)));
    }
}
