package org.example.leasehold;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumSet;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.function.Consumer;
import java.util.function.Supplier;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The connections to the servers of the locks, one to each, which are opened when they are needed. All is done in turn.
 *
 * <p>A connection ends when it is cut: what was not answered is asked for again by those who still want it.
 */
final class Link implements Grantor {
    /** For how long a server that had no module is taken to have none. It may have been replaced. */
    private static final long PLAIN_FOR = 10_000_000_000L;
    /** Longer than any server needs that is there. */
    private static final long OPENS_WITHIN = 5_000_000_000L;
    /** For how long what a node has said of a slot counts more than what the client of the program knows. */
    private static final long MOVED_FOR = 5_000_000_000L;
    /** How many silent connections to a server stay open at a time, to hear late answers. */
    private static final int MOST_LINGERING = 4;
    /** How long a silent connection stays open for a server that may read on. */
    private static final long LAST_WORDS = 60_000_000_000L;
    /** How often it is asked who is the primary, as long as there is something to ask that. */
    private static final long LOOKS_EVERY = 1_000_000_000;
    /** How often a command follows its key to another node at once. */
    private static final int MOST_MOVES = 5;

    private static final String ASK = "ASK";
    private static final Pattern RUN_ID = Pattern.compile("run_id:(\\w+)");

    final Queue queue;
    private final Turn turn;
    private final Connector connector;
    private final boolean isOfQuorum;
    private final Map<String, Spot> spots = new HashMap<>();
    private final Map<Integer, Move> moves = new HashMap<>();
    /** What waits until it is known which node has which slot. */
    private final Set<Call> lost = new LinkedHashSet<>();
    /** Those that are open. */
    private final Set<Line> lines = new LinkedHashSet<>();

    private final Set<Script> known = EnumSet.noneOf(Script.class);
    private long lookingSince = -OPENS_WITHIN;
    private long lookedAt;
    private @Nullable Throwable failure;
    /** The servers that are taken to have no module, and until when. */
    private final Map<String, Long> plain = new HashMap<>();
    /** The servers on which this user may not run scripts, as far as is known, and until when. */
    private final Map<String, Long> bare = new HashMap<>();

    private boolean isClosed;

    private record Move(String to, long until) {}

    Link(Core core, Connector connector, boolean isOfQuorum) {
        this.turn = core.turn;
        this.connector = connector;
        this.isOfQuorum = isOfQuorum;
        this.queue = new Queue(core, this);
    }

    @Override
    public boolean isPlain(byte[] key) {
        return isAmong(plain, key);
    }

    private boolean isAmong(Map<String, Long> servers, byte[] key) {
        return !servers.isEmpty() && Clock.now() < servers.getOrDefault(String.valueOf(placeOf(key)), 0L);
    }

    private void among(Map<String, Long> servers, byte[] key) {
        servers.put(String.valueOf(placeOf(key)), Clock.now() + PLAIN_FOR);
    }

    @Override
    public boolean learns(byte[] key, Throwable error) {
        switch (Verdict.of(error)) {
            case UNKNOWN_COMMAND -> among(plain, key);
            case HAS_MODULE -> plain.remove(String.valueOf(placeOf(key)));
            case UNKNOWN_SCRIPT -> known.clear();
            default -> {
                return false;
            }
        }
        return true;
    }

    @Override
    public LeaseholdException told(Throwable error) {
        return Verdict.told(error, failure);
    }

    boolean isFailing() {
        return failure != null;
    }

    @Override
    public Attempt.Activity acquire(Attempt attempt) {
        return new Place(attempt, this);
    }

    @Override
    public Try ask(Claim claim, Claim.Question question, Fate fate, Answer answer) {
        if (!isPlain(claim.key())) {
            return inCommands(claim, question, fate, answer);
        }
        Script script = Script.of(question);
        boolean isKnown = known.contains(script);
        List<byte[]> words = script.words(claim, question, isKnown);
        if (isAmong(bare, claim.key())) {
            return new Bare(this, claim, question, fate, answer).start();
        }
        Call[] call = new Call[1];
        call[0] = new Call(claim.key(), words, fate, (reply, error) -> {
            if (error == null && !isKnown) {
                known.add(script);
            }
            if (error != null && Bare.isWithoutScripts(error)) {
                call[0].next = probe(claim, question, fate, answer, error);
            } else {
                answer.came(reply, error);
            }
        });
        return send(call[0]);
    }

    /** Asks in the commands of the module. */
    Call inCommands(Claim claim, Claim.Question question, Fate fate, Answer answer) {
        Call call = new Call(claim.key(), claim.words(question), fate, answer);
        call.binds = claim.grace() >= 0 && question.acquires();
        return send(call);
    }

    /** Asks what changes nothing. Where the server does not know IFEQ either, it is the script that counts. */
    private Try probe(Claim claim, Claim.Question question, Fate fate, Answer answer, Throwable refusal) {
        List<byte[]> words = Words.of("SET", Script.beside(claim.key()), "0", "IFEQ", "none", "PX", "1");
        Call[] call = new Call[1];
        call[0] = new Call(claim.key(), words, NO_MATTER, (reply, error) -> {
            if (error != null) {
                answer.came(null, refusal);
            } else {
                among(bare, claim.key());
                call[0].next = new Bare(this, claim, question, fate, answer).start();
            }
        });
        return send(call[0]);
    }

    /** What a server that has not read a request for a lock yet is to read behind it. */
    private List<byte[]> lastWord(Claim claim) {
        Claim.Question release = Claim.Question.release(0);
        if (!isPlain(claim.key()) || claim.needsModule() != null) {
            return claim.words(release);
        }
        return isAmong(bare, claim.key()) ? Bare.lastWord(claim) : Script.RELEASE.words(claim, release, false);
    }

    /** Sends a command to the server that has the key. */
    Call say(byte[] key, List<byte[]> words, Fate fate, Answer answer) {
        return send(new Call(key, words, fate, answer));
    }

    @Override
    public void moved() {
        if (connector.isSingle()) {
            spots.values().forEach(Spot::leave);
        } else {
            look();
        }
    }

    /** Where a key is, as far as is known. */
    @Nullable String placeOf(byte[] key) {
        if (connector.isSingle()) {
            return "";
        }
        int slot = connector.slotOf(key);
        Move move = moves.get(slot);
        if (move != null && Clock.now() < move.until) {
            return move.to;
        }
        moves.remove(slot);
        return connector.placeOf(slot);
    }

    Call send(Call call) {
        String place = call.to != null ? call.to : placeOf(call.key);
        if (isClosed) {
            call.arrive(null, new LeaseholdException.Closed());
        } else if (place == null) {
            lost.add(call);
            look();
        } else {
            spots.computeIfAbsent(place, Spot::new).send(call);
            if (connector.isWatched() && Clock.now() - lookedAt >= LOOKS_EVERY) {
                look();
            }
        }
        return call;
    }

    /** Finds out where slots are. */
    private void look() {
        if (connector.isSingle() || isClosed || Clock.now() - lookingSince < OPENS_WITHIN) {
            return;
        }
        lookingSince = Clock.now();
        List<Call> asking = List.copyOf(lost);
        Supplier<Boolean> work = () -> {
            connector.look(asking.stream().map(call -> call.key).toList());
            return true;
        };
        Consumer<Throwable> failed = error -> turn.take(() -> {
            failure = error;
            looked(asking, error);
        });
        background(work, done -> turn.take(() -> looked(asking, new IllegalStateException("no server has the slot of the lock"))), failed);
    }

    private void looked(List<Call> asking, Throwable error) {
        lookingSince = -OPENS_WITHIN;
        lookedAt = Clock.now();
        if (connector.isWatched()) {
            // A former primary may still be there, and grant locks.
            String primary = connector.placeOf(0);
            List.copyOf(spots.values()).stream().filter(spot -> !spot.place.equals(primary)).forEach(Spot::leave);
        }
        for (Call call : asking) {
            boolean isWanted = lost.remove(call);
            if (isWanted && placeOf(call.key) == null) {
                call.arrive(null, error);
            } else if (isWanted) {
                send(call);
            }
        }
        if (!lost.isEmpty()) {
            look();
        }
    }

    /** Whether a command is sent to another node, where its key is. What was said is remembered. */
    private boolean follows(Call call, Throwable error) {
        String code = Verdict.code(error);
        boolean isMoved = "MOVED".equals(code);
        if (connector.isSingle() || !call.isOpen || !isMoved && !ASK.equals(code) || call.moves++ == MOST_MOVES || call.line == null) {
            return false;
        }
        String[] words = Verdict.said(error).split(" ");
        if (words.length != 3) {
            return false;
        }
        String from = call.line.place;
        // A node that does not know its own address means the one that it was asked at.
        String to = words[2].startsWith(":") ? from.substring(0, from.lastIndexOf(':')) + words[2] : words[2];
        if (isMoved) {
            moves.put(connector.slotOf(call.key), new Move(to, Clock.now() + MOVED_FOR));
            look();
        }
        call.to = to;
        call.isAsking = !isMoved;
        call.line = null;
        send(call);
        return true;
    }

    /** Opens a subscription. What comes of it, and what it tells, is told by other threads, and not in turn. */
    void listen(String place, byte[] channel, Consumer<byte[]> heard, Consumer<Connector.Wire> opened, Consumer<Throwable> failed) {
        background(() -> connector.listen(place, channel, heard), opened, failed);
    }

    /** Opens a connection of its own to the server of a key, which ends with this. */
    CompletableFuture<Line> dedicated(byte[] key) {
        CompletableFuture<Line> opening = new CompletableFuture<>();
        String place = placeOf(key);
        if (place == null) {
            look();
            opening.completeExceptionally(Verdict.SILENT);
            return opening;
        }
        background(() -> connector.connect(place), wire -> turn.take(() -> {
            Line line = new Line(place, wire);
            if (isClosed || !opening.complete(line)) {
                line.end(Verdict.SILENT);
            }
        }), error -> turn.take(() -> opening.completeExceptionally(error)));
        return opening;
    }

    /** Connecting blocks for as long as the library likes: so it has a thread for that long. */
    private <T> void background(Supplier<T> work, Consumer<T> done, Consumer<Throwable> failed) {
        turn.after(() -> {
            Thread thread = new Thread(() -> {
                T result;
                try {
                    result = work.get();
                } catch (Throwable e) {
                    failed.accept(e);
                    return;
                }
                done.accept(result);
            }, "leasehold-connect");
            thread.setDaemon(true);
            thread.start();
        });
    }

    @Override
    public void silent(Try asked, long patience) {
        Line line = asked.line();
        if (line != null && line.isSilentFor(patience)) {
            spots.computeIfAbsent(line.place, Spot::new).silent(line);
            look();
        }
    }

    @Override
    public void close() {
        isClosed = true;
        queue.close();
        List<Call> calls = new ArrayList<>(lost);
        lost.clear();
        spots.values().forEach(spot -> calls.addAll(spot.close()));
        calls.forEach(call -> call.arrive(null, new LeaseholdException.Closed()));
        List.copyOf(lines).forEach(line -> line.end(new LeaseholdException.Closed()));
        turn.after(connector::close);
    }

    /** A server, with the connection to it. */
    private final class Spot {
        private final String place;
        private final Deque<Line> lingering = new ArrayDeque<>();
        private final List<Call> unsent = new ArrayList<>();
        private @Nullable Line current;
        private @Nullable Object opening;
        private long openingSince;

        private Spot(String place) {
            this.place = place;
        }

        private void send(Call call) {
            if (current != null && current.isOpen) {
                current.send(call);
                return;
            }
            unsent.add(call);
            call.waitsIn = unsent;
            if (opening == null || Clock.now() - openingSince > OPENS_WITHIN) {
                open();
            }
        }

        private void open() {
            Object mine = new Object();
            opening = mine;
            openingSince = Clock.now();
            turn.at(openingSince + OPENS_WITHIN, () -> {
                if (opening == mine && !unsent.isEmpty()) {
                    open();
                }
            });
            background(
                    () -> connector.connect(place),
                    wire -> turn.take(() -> {
                        Line line = new Line(place, wire);
                        if (isOfQuorum) {
                            identify(mine, line);
                        } else {
                            opened(mine, line);
                        }
                    }),
                    error -> turn.take(() -> failed(mine, error)));
        }

        /** The address may lead to another server with each connection. Nothing is asked before it is known to which one. */
        private void identify(Object mine, Line line) {
            Turn.Deadline limit = turn.at(Clock.now() + OPENS_WITHIN, () -> line.end(Verdict.SILENT));
            line.say(new byte[0], Words.of("INFO", "server"), (reply, error) -> {
                limit.cancel();
                if (error != null) {
                    line.end(error);
                    failed(mine, error);
                    return;
                }
                Matcher found = RUN_ID.matcher(reply instanceof byte[] text ? Script.text(text) : "");
                line.runId = found.find() ? found.group(1) : "";
                opened(mine, line);
            });
        }

        private void failed(Object mine, Throwable error) {
            if (opening == mine) {
                opening = null;
                failure = error;
                moves.values().removeIf(move -> move.to.equals(place));
                look();
                unsent().forEach(call -> call.arrive(null, error));
            }
        }

        private void opened(Object mine, Line line) {
            if (opening != mine || isClosed) {
                line.end(Verdict.SILENT);
                return;
            }
            opening = null;
            failure = null;
            current = line;
            // The address may lead to another server now, which tells nothing on the subscription to the former one.
            queue.forget(place);
            unsent().forEach(line::send);
        }

        private List<Call> unsent() {
            List<Call> calls = List.copyOf(unsent);
            unsent.clear();
            return calls;
        }

        private void silent(Line line) {
            if (line != current) {
                return;
            }
            current = null;
            lingering.add(line);
            line.tell();
            turn.at(Clock.now() + LAST_WORDS, () -> line.end(Verdict.SILENT));
            if (lingering.size() > MOST_LINGERING) {
                lingering.remove().end(Verdict.SILENT);
            }
        }

        /** The server does not grant locks any more, or another one does. */
        private void leave() {
            if (current != null) {
                current.end(Verdict.SILENT);
            }
            queue.forget(place);
        }

        private List<Call> close() {
            opening = null;
            return unsent();
        }
    }

    /** A command, until it is answered or nobody waits for the answer. */
    final class Call implements Try {
        private final byte[] key;
        private final List<byte[]> words;
        private final Fate fate;
        private final Answer answer;
        private boolean isOpen = true;
        private @Nullable List<Call> waitsIn;
        private @Nullable Line line;
        private long sentAt;
        /** Where it is sent, if its key says otherwise. */
        private @Nullable String to;

        /** What it led to: who gives it up gives up that. */
        private @Nullable Try next;

        private boolean isAsking;
        private int moves;
        /** Whatever it gets is bound to its connection. */
        private boolean binds;

        Call(byte[] key, List<byte[]> words, Fate fate, Answer answer) {
            this.key = key;
            this.words = words;
            this.fate = fate;
            this.answer = answer;
        }

        private void arrive(@Nullable Object reply, @Nullable Throwable error) {
            boolean isHeard = error == null || Verdict.code(error) != null;
            if (isOpen) {
                isOpen = false;
                if (!isHeard) {
                    left();
                } else if (binds && reply != null && line != null) {
                    fate.bound(line);
                }
                answer.came(reply, error);
            } else if (isHeard) {
                fate.late();
            }
        }

        @Override
        public void giveUp() {
            if (isOpen) {
                isOpen = false;
                lost.remove(this);
                if (waitsIn != null) {
                    waitsIn.remove(this);
                }
                left();
            } else if (next != null) {
                next.giveUp();
            }
        }

        private void left() {
            if (line != null) {
                fate.left(line);
            }
        }

        @Override
        public boolean isSent() {
            return line != null;
        }

        @Override
        public @Nullable Line line() {
            return line;
        }
    }

    /** One connection, until it is cut. */
    final class Line {
        final String place;
        /** Of the server that it leads to, if that is one of a quorum. */
        private String runId = "";

        private final Connector.Wire wire;
        private final Set<Call> pending = new LinkedHashSet<>();
        private final Set<Runnable> ends = new LinkedHashSet<>();
        private boolean isOpen = true;

        private Line(String place, Connector.Wire wire) {
            this.place = place;
            this.wire = wire;
            lines.add(this);
            wire.whenCut(() -> turn.take(() -> end(Verdict.SILENT)));
        }

        /** False if it was cut. */
        boolean send(Call call) {
            if (!isOpen) {
                call.arrive(null, Verdict.SILENT);
                return false;
            }
            call.line = this;
            call.sentAt = Clock.now();
            call.waitsIn = null;
            pending.add(call);
            boolean isAsking = call.isAsking;
            turn.after(() -> wire.send(call.words, isAsking, (reply, error) -> turn.take(() -> {
                if (pending.remove(call) && (error == null || !follows(call, error))) {
                    call.arrive(reply, error);
                }
            })));
            return true;
        }

        /** Sends one on this connection, wherever its key is. */
        Call say(byte[] key, List<byte[]> words, Answer answer) {
            Call call = new Call(key, words, NO_MATTER, answer);
            call.moves = MOST_MOVES;
            send(call);
            return call;
        }

        /** Gives back what a request comes to that was sent before and not answered. */
        Call sayLast(Claim claim, Answer answer) {
            return say(claim.key(), lastWord(claim), answer);
        }

        private boolean isSilentFor(long patience) {
            return !pending.isEmpty() && Clock.now() - pending.iterator().next().sentAt >= patience;
        }

        boolean isOpen() {
            return isOpen;
        }

        String runId() {
            return runId;
        }

        /** Done once when it is cut or put aside. Returns what takes that back. */
        Runnable whenEnded(Runnable work) {
            if (!isOpen) {
                work.run();
                return () -> {};
            }
            ends.add(work);
            return () -> ends.remove(work);
        }

        void end(Throwable error) {
            if (!isOpen) {
                return;
            }
            isOpen = false;
            lines.remove(this);
            Spot spot = spots.get(place);
            if (spot != null) {
                spot.lingering.remove(this);
                if (spot.current == this) {
                    spot.current = null;
                }
            }
            List<Call> missing = List.copyOf(pending);
            pending.clear();
            turn.after(wire::close);
            missing.forEach(each -> each.arrive(null, error));
            tell();
        }

        private void tell() {
            List<Runnable> told = List.copyOf(ends);
            ends.clear();
            told.forEach(Runnable::run);
        }
    }
}
