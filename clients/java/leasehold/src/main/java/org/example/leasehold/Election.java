package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** An election has one leader among several candidates: whoever leads holds its lock. */
public final class Election {
    private static final int LONGEST_OWNER = 255;
    private static final String SEPARATOR = "/";
    private static final int UUID_LENGTH = 36;
    private static final long SECOND = 1_000_000_000;
    private static final long MILLI = 1_000_000;
    /** How often to look at least, though nothing has been heard. */
    private static final long LOOKS_AT_LEAST = 30 * SECOND;

    private static final Pattern DB = Pattern.compile("\\bdb=(\\d+)");

    private final Core core;
    private final NamedLock lock;
    private final byte[] key;
    private final String candidate;

    /**
     * Whoever leads, since it was granted the lock of the election.
     *
     * @param candidate the name that it gave when it campaigned
     * @param fence of its term: larger than that of any earlier term
     */
    public record Leader(String candidate, long fence) {}

    Election(Core core, NamedLock lock, byte[] key, String candidate) {
        int longest = LONGEST_OWNER - UUID_LENGTH - SEPARATOR.length();
        if (Claim.bytes(candidate).length > longest) {
            throw new IllegalArgumentException("candidate must have at most " + longest + " bytes");
        }
        this.core = core;
        this.lock = lock;
        this.key = key;
        this.candidate = candidate;
    }

    private Options asCandidate(Options options) {
        return options.owner(candidate + SEPARATOR + UUID.randomUUID());
    }

    /**
     * Waits until this candidate leads. Candidates queue, and lead in the order of their coming. The term is over when its lease
     * is released, or lost.
     *
     * @param options what is to be otherwise than the settings say
     * @return the term
     * @throws InterruptedException if the thread is interrupted; nothing stays behind on the server
     */
    public Lease campaign(Options options) throws InterruptedException {
        return lock.acquire(asCandidate(options));
    }

    /**
     * Campaigns without blocking: see {@link #campaign}.
     *
     * @param options what is to be otherwise than the settings say
     * @return the term
     */
    public CompletableFuture<Lease> campaignAsync(Options options) {
        return lock.acquireAsync(asCandidate(options));
    }

    /**
     * Returns who leads at this moment.
     *
     * @return null between two terms
     * @throws InterruptedException if the thread is interrupted
     */
    public @Nullable Leader leader() throws InterruptedException {
        return Futures.<@Nullable Leader>await(look().<@Nullable Leader>thenApply(Election::leaderOf));
    }

    /**
     * Tells who leads at this moment, without blocking.
     *
     * @return null between two terms
     */
    public CompletableFuture<@Nullable Leader> leaderAsync() {
        return Futures.<@Nullable Leader>outside(look().<@Nullable Leader>thenApply(Election::leaderOf), core.settings.executor);
    }

    private CompletableFuture<@Nullable LockInfo> look() {
        return core.turn.get(() -> new Look(core, key).info());
    }

    private static @Nullable Leader leaderOf(@Nullable LockInfo info) {
        if (info == null) {
            return null;
        }
        String owner = info.oldest().owner();
        int at = owner.length() - UUID_LENGTH - SEPARATOR.length();
        return new Leader(at >= 0 && owner.startsWith(SEPARATOR, at) ? owner.substring(0, at) : owner, info.oldest().fence());
    }

    /**
     * Tells of whoever leads, on the executor: of the present leader first, and then of each that differs from the one before;
     * null: nobody leads. Where the server has key events ({@code notify-keyspace-events} with K and A) and tells them to this
     * user, it looks when there is one; else every second, and terms shorter than that may be missed. While no server answers
     * it says nothing.
     *
     * @param told is told of one leader at a time
     * @return is to be cancelled by whoever has seen enough; fails when the {@link Leasehold} is closed
     */
    public CompletableFuture<Void> observe(Consumer<@Nullable Leader> told) {
        CompletableFuture<Void> observing = new CompletableFuture<>();
        Observer observer = new Observer(told, observing);
        core.turn.take(observer::start);
        observing.whenComplete((done, error) -> core.turn.take(observer::end));
        return observing;
    }

    /** All is done in turn. */
    private final class Observer {
        private final Consumer<@Nullable Leader> told;
        private final CompletableFuture<Void> observing;
        private final Runnable closed = this::closed;
        private @Nullable Leader last;
        private boolean isFirst = true;
        private boolean isLooking;
        private boolean isMissed;
        private boolean isOver;
        private boolean mayListen = true;
        /** A subscription to the key events of the lock. */
        private Connector.@Nullable Wire events;
        private Turn.@Nullable Deadline deadline;

        Observer(Consumer<@Nullable Leader> told, CompletableFuture<Void> observing) {
            this.told = told;
            this.observing = observing;
        }

        private void start() {
            if (core.isClosed()) {
                closed();
                return;
            }
            core.closes.add(closed);
            look();
        }

        private void closed() {
            core.turn.after(() -> observing.completeExceptionally(new LeaseholdException.Closed()));
        }

        private void end() {
            isOver = true;
            core.closes.remove(closed);
            if (deadline != null) {
                deadline.cancel();
            }
            if (events != null) {
                core.turn.after(events::close);
            }
        }

        private void look() {
            if (isOver || isLooking) {
                isMissed = true;
                return;
            }
            isLooking = true;
            isMissed = false;
            if (deadline != null) {
                deadline.cancel();
            }
            if (mayListen) {
                mayListen = false;
                listen();
            }
            Election.this.look().whenComplete((info, error) -> {
                Leader leader = leaderOf(info);
                boolean isNew = error == null && (isFirst || (leader == null) != (last == null) || leader != null && leader.fence != last.fence);
                if (isNew) {
                    last = leader;
                    isFirst = false;
                    Futures.run(core.settings.executor, () -> {
                        try {
                            told.accept(leader);
                        } finally {
                            core.turn.take(() -> looked(info));
                        }
                    });
                } else {
                    core.turn.take(() -> {
                        mayListen |= error != null && events == null;
                        looked(info);
                    });
                }
            });
        }

        private void looked(@Nullable LockInfo info) {
            isLooking = false;
            if (isOver) {
                return;
            }
            if (isMissed) {
                look();
                return;
            }
            long resting = SECOND;
            if (events != null) {
                boolean isLasting = info == null || info.oldest().ttl() == null;
                resting = isLasting ? LOOKS_AT_LEAST : Math.min(LOOKS_AT_LEAST, info.oldest().ttl().toNanos());
            }
            deadline = core.turn.at(Clock.now() + resting + MILLI, this::look);
        }

        /** Has the server tell of changes by its own key events, unless they are off or this user may not hear of them. */
        private void listen() {
            Look look = new Look(core, key);
            CompletableFuture<@Nullable Object> client = look.read(Words.of("CLIENT", "INFO"));
            look.read(Words.of("CONFIG", "GET", "notify-keyspace-events")).thenCombine(client, (config, info) -> {
                String flags = new Look.Row(config == null ? "" : config).text("notify-keyspace-events");
                boolean isOn = flags.contains("K") && (flags.contains("A") || "d$gx".chars().allMatch(each -> flags.indexOf(each) >= 0));
                Matcher db = DB.matcher(info instanceof byte[] text ? Script.text(text) : "");
                if (isOn && db.find()) {
                    String channel = "__keyspace@" + db.group(1) + "__:" + Script.text(key);
                    core.turn.take(() -> listen(channel.getBytes(StandardCharsets.ISO_8859_1)));
                }
                return true;
            });
        }

        private void listen(byte[] channel) {
            Link link = core.link();
            String place = link.placeOf(key);
            if (place == null || isOver) {
                return;
            }
            link.listen(
                    place,
                    channel,
                    message -> core.turn.take(this::look),
                    wire -> core.turn.take(() -> {
                        if (isOver) {
                            core.turn.after(wire::close);
                        } else {
                            events = wire;
                            wire.whenCut(() -> core.turn.take(this::cut));
                            look();
                        }
                    }),
                    error -> core.turn.take(() -> mayListen = Verdict.of(error) != Verdict.REFUSED));
        }

        private void cut() {
            events = null;
            mayListen = true;
            look();
        }
    }
}
