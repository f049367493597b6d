package org.example.leasehold;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import java.util.function.Predicate;
import org.jspecify.annotations.Nullable;

/**
 * A lock on most of several servers that know nothing of each other: Redlock, with fences. All is done in turn.
 *
 * <pre>
 * a  ACQUIRE ► 17   RAISE 18 ► 18        The lock is held once most servers have granted it, and the fence is the
 * b  ACQUIRE ► 18   RAISE 18 ► 18        largest of theirs. Most are raised to it: any later majority has one of
 * c  ACQUIRE ┈ no answer                 these among it, so its fence is larger.
 * </pre>
 *
 * For whoever holds a lock it is one server, which says what most of them say.
 */
final class Majority implements Grantor {
    /** How long one server may take to answer at the most. */
    private static final long LONGEST_LIMIT = 500_000_000;
    /** Those who are a little slower than most are waited for. */
    private static final long LEAST_GRACE = 10_000_000;

    private final Core core;
    private final List<Link> peers;

    /** Without a line there is an error. */
    private record Came(Link peer, Link.@Nullable Line line, long number, boolean isNil, @Nullable Throwable error) {
        boolean isGranted() {
            return error == null && !isNil;
        }

        boolean is(long number) {
            return isGranted() && this.number == number;
        }

        boolean isGrantedBy(Link.Line other) {
            return isGranted() && line != null && line.runId().equals(other.runId());
        }
    }

    Majority(Core core, List<Link> peers) {
        this.core = core;
        this.peers = peers;
    }

    private int most() {
        return peers.size() / 2 + 1;
    }

    private static int count(List<Came> all, Predicate<Came> is) {
        return (int) all.stream().filter(is).count();
    }

    @Override
    public LeaseholdException told(Throwable error) {
        return peers.stream().filter(Link::isFailing).findFirst().orElse(peers.get(0)).told(error);
    }

    @Override
    public void close() {
        peers.forEach(Link::close);
    }

    /** 1 if most did it, 0 if too many said that it is not held. */
    @Override
    public Try ask(Claim claim, Claim.Question question, Fate fate, Answer answer) {
        boolean isRelease = question.asks() == Claim.Asks.RELEASE;
        // Each server has granted it by a fence of its own, before that was raised.
        Claim.Question asked = isRelease ? Claim.Question.release(0) : question;
        boolean[] isOver = new boolean[1];
        new Poll(peers, claim, asked, Clock.NEVER, came -> came.is(1), answers -> {
            if (isOver[0]) {
                return;
            }
            int agreed = count(answers, came -> came.is(1));
            boolean isHeldByMost = peers.size() - count(answers, came -> came.is(0)) >= most();
            if (agreed >= most() || isRelease && isHeldByMost && agreed > 0) {
                answer.came(1L, null);
            } else if (!isHeldByMost) {
                answer.came(0L, null);
            } else {
                Throwable error = tooFew(answers);
                answer.came(null, error != null ? error : new IllegalStateException("most servers have not answered in time"));
            }
        }).start();
        return () -> isOver[0] = true;
    }

    @Override
    public Attempt.Activity acquire(Attempt attempt) {
        return new Stand(attempt);
    }

    /** Where there is no queue that all servers share, whoever waits asks again. */
    private final class Stand implements Attempt.Activity {
        private final Attempt attempt;
        private Turn.@Nullable Deadline resting;
        private int tries;
        private boolean isOver;
        /** Why the lock could not be had: null if others have it. */
        private @Nullable Throwable trouble;

        private Stand(Attempt attempt) {
            this.attempt = attempt;
        }

        @Override
        public void start() {
            // A new owner each time: what is still to be released for an earlier try does not hit this one.
            Claim claim = attempt.claim.as(Core.newOwner());
            attempt.claim = claim;
            long asked = Clock.now();
            long until = attempt.waits() ? attempt.until : Clock.NEVER;
            Claim.Question question = Claim.Question.acquire(attempt.ttl);
            // The patience ends before the servers must have answered: then what they said before still holds.
            boolean isCutShort = tries > 0 && Clock.left(until) < limit(question);
            new Poll(peers, claim, question, until, Came::isGranted, answers -> raise(
                            claim, answers.stream().filter(Came::isGranted).toList(), until, (fence, error) -> {
                                boolean isHeld = fence != 0 && Clock.now() < Clock.validUntil(asked, attempt.ttl);
                                if (isHeld && !isOver) {
                                    // Whoever gives up from now on gives it back.
                                    attempt.mayHold();
                                    attempt.granted(new Attempt.Grant(fence, asked, attempt.ttl, false));
                                    return;
                                }
                                if (!isCutShort) {
                                    trouble = error != null || fence != 0 ? error : tooFew(answers);
                                }
                                if (Clock.left(until) == 0 && !isOver) {
                                    // Nobody waits for that it is given back.
                                    attempt.mayHold();
                                    refused();
                                    return;
                                }
                                new Poll(peers, claim, Claim.Question.release(0), Clock.NEVER, came -> came.is(1), done -> refused())
                                        .start();
                            }))
                    .start();
        }

        private void refused() {
            if (isOver) {
                return;
            }
            Throwable error = trouble;
            long left = attempt.waits() ? Clock.left(attempt.until) : 0;
            boolean isFinal = error instanceof LeaseholdException && !(error instanceof LeaseholdException.Unreachable) && !Verdict.mayPass(error);
            if (error != null && (left == 0 || isFinal)) {
                attempt.fail(told(error));
            } else if (left == 0) {
                attempt.granted(null);
            } else {
                // At random, or those who split the servers between them would do so again.
                resting = core.turn.at(Clock.now() + Math.min(Clock.Rest.POLL.after(tries++), left), this::start);
            }
        }

        @Override
        public void stop() {
            isOver = true;
            attempt.mayHold();
            if (resting != null) {
                resting.cancel();
            }
        }
    }

    private interface Raised {
        /** 0: it cannot be done. */
        void came(long fence, @Nullable Throwable error);
    }

    /** Has most of them have one fence: the largest of those that were granted. */
    private void raise(Claim claim, List<Came> granted, long until, Raised then) {
        if (granted.size() < most()) {
            then.came(0, null);
            return;
        }
        long fence = granted.stream().mapToLong(Came::number).max().orElse(0);
        Predicate<Came> isRaised = came -> came.is(fence);
        new Poll(granted.stream().map(Came::peer).toList(), claim, Claim.Question.raise(fence), until, isRaised, answers -> {
            Throwable error = tooFew(answers);
            if (count(answers, isRaised) >= most()) {
                then.came(fence, null);
            } else if (error instanceof LeaseholdException && granted.size() > most()) {
                // A clock that is far ahead of most is left out, and its server does not count: any majority will do.
                raise(claim, granted.stream().filter(came -> came.number < fence).toList(), until, then);
            } else {
                then.came(0, error);
            }
        }).start();
    }

    /** How long each server may take to answer. */
    private long limit(Claim.Question question) {
        long most = Math.min(LONGEST_LIMIT, core.settings.response);
        return question.ttl() > 0 ? Math.max(1_000_000, Math.min(most, question.ttl() / 10)) : most;
    }

    /** A question to several, until nobody who has not answered can change what most have said. */
    private final class Poll {
        private final List<Link> whom;
        private final Claim claim;
        private final Claim.Question question;
        private final Predicate<Came> agrees;
        private final Consumer<List<Came>> then;
        private final long asked = Clock.now();
        private final long each;
        private final List<Came> heard = new ArrayList<>();
        private Turn.@Nullable Deadline deadline;
        private boolean isOver;

        Poll(List<Link> whom, Claim claim, Claim.Question question, long until, Predicate<Came> agrees, Consumer<List<Came>> then) {
            this.whom = whom;
            this.claim = claim;
            this.question = question;
            this.agrees = agrees;
            this.then = then;
            this.each = Math.min(limit(question), Clock.left(until));
        }

        void start() {
            deadline = core.turn.at(asked + each, this::end);
            whom.forEach(this::ask);
        }

        private void ask(Link peer) {
            // The others do not wait for it as long as that, but it may answer yet.
            long patience = Clock.patienceForAnswer(core.settings.response, question.ttl() > 0 ? question.ttl() : Clock.NEVER);
            boolean isRelease = question.asks() == Claim.Asks.RELEASE;
            // A release is asked for until somebody hears it.
            long until = Clock.add(Clock.now(), isRelease ? core.settings.unreachableAfter : each);
            Fate fate = !question.acquires() ? NO_MATTER : new Fate() {
                @Override
                public void left(Link.Line line) {
                    takeBack(line);
                }
            };
            Request.about(core, peer, claim, question, patience, until, fate, (answer, error) -> {
                        if (answer == null) {
                            hear(new Came(peer, null, 0, true, error));
                        } else if (isRelease && answer.isRepeated() && answer.number() == 0) {
                            // An earlier try may have done it.
                            hear(new Came(peer, null, 0, true, Verdict.SILENT));
                        } else {
                            hear(new Came(peer, answer.line(), answer.number(), answer.isNil(), null));
                        }
                    })
                    .start();
        }

        private boolean isAmongHeard(Link.Line line) {
            return heard.stream().anyMatch(came -> came.isGrantedBy(line));
        }

        /** What was granted too late is nobody's. What the server has granted in time by another address stays. */
        private void takeBack(Link.@Nullable Line line) {
            if (line != null && !isAmongHeard(line)) {
                line.sayLast(claim, (reply, error) -> {});
            }
        }

        /** A server that is named twice would count twice: two majorities could have no server in common then. */
        private Came once(Came came) {
            if (came.line == null || !came.isGranted() || !isAmongHeard(came.line)) {
                return came;
            }
            String reason = "two of the clients lead to one server, which has the run id " + came.line.runId();
            return new Came(came.peer, null, 0, true, new LeaseholdException.Refused("QUORUM", reason));
        }

        private void hear(Came came) {
            if (isOver) {
                if (question.acquires() && came.isGranted()) {
                    takeBack(came.line);
                }
                return;
            }
            heard.add(once(came));
            int agreed = count(heard, agrees);
            boolean isOut = whom.size() - (heard.size() - agreed) < most();
            if (heard.size() == whom.size()) {
                end();
            } else if ((agreed >= most() || isOut) && deadline != null) {
                deadline.cancel();
                long now = Clock.now();
                deadline = core.turn.at(Math.min(asked + each, now + Math.max(LEAST_GRACE, now - asked)), this::end);
            }
        }

        private void end() {
            if (!isOver) {
                isOver = true;
                if (deadline != null) {
                    deadline.cancel();
                }
                then.accept(List.copyOf(heard));
            }
        }
    }

    /** Why not enough of them agreed; null if most of them have answered. */
    private @Nullable Throwable tooFew(List<Came> answers) {
        List<Throwable> errors = new ArrayList<>();
        for (Came came : answers) {
            if (came.error != null) {
                errors.add(came.error);
            }
        }
        int answered = answers.size() - errors.size();
        if (answered >= most()) {
            return null;
        }
        for (Throwable error : errors) {
            if (error instanceof LeaseholdException && !(error instanceof LeaseholdException.Unreachable)) {
                return error;
            }
        }
        return new IllegalStateException(
                answered + " of " + peers.size() + " servers answered in time", errors.isEmpty() ? null : errors.get(errors.size() - 1));
    }
}
