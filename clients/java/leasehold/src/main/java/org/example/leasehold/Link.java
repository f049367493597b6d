package org.example.leasehold;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
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
import org.jspecify.annotations.Nullable;

/**
 * The connections to the servers of the locks, one to each, which are opened when they are needed. All is done in turn.
 *
 * <p>Lettuce connects again by itself, and sends again what was not answered. Here a connection ends when it is cut: what was
 * not answered is asked for again by those who still want it.
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
    /** How often a command follows its key to another node at once. */
    private static final int MOST_MOVES = 5;

    private static final String ASK = "ASK";

    final Queue queue;
    private final Turn turn;
    private final Connector connector;
    private final Map<String, Spot> spots = new HashMap<>();
    private final Map<Integer, Move> moves = new HashMap<>();
    /** What waits until it is known which node has which slot. */
    private final List<Call> lost = new ArrayList<>();
    /** Those that are open. */
    private final Set<Line> lines = new LinkedHashSet<>();

    private final Set<Script> known = EnumSet.noneOf(Script.class);
    private long lookingSince = -OPENS_WITHIN;
    private @Nullable Throwable failure;
    /** The nodes that are taken to have no module, and until when. */
    private final Map<String, Long> plain = new HashMap<>();
    /** This user may not run scripts, as far as is known. */
    private long bareUntil;

    private boolean isClosed;

    private record Move(String to, long until) {}

    Link(Core core, Connector connector) {
        this.turn = core.turn;
        this.connector = connector;
        this.queue = new Queue(core, this);
    }

    @Override
    public boolean isPlain(byte[] key) {
        return !plain.isEmpty() && Clock.now() < plain.getOrDefault(String.valueOf(nodeOf(key)), 0L);
    }

    @Override
    public boolean learns(byte[] key, Throwable error) {
        switch (Verdict.of(error)) {
            case UNKNOWN_COMMAND -> plain.put(String.valueOf(nodeOf(key)), Clock.now() + PLAIN_FOR);
            case HAS_MODULE -> plain.remove(String.valueOf(nodeOf(key)));
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
        Words words = script.words(claim, question, isKnown);
        if (bareUntil != 0 && Clock.now() < bareUntil) {
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
        Words words = Words.of("SET", Script.beside(claim.key()), "0", "IFEQ", "none", "PX", "1");
        Call[] call = new Call[1];
        call[0] = new Call(claim.key(), words, NO_MATTER, (reply, error) -> {
            if (error != null) {
                answer.came(null, refusal);
            } else {
                bareUntil = Clock.now() + PLAIN_FOR;
                call[0].next = new Bare(this, claim, question, fate, answer).start();
            }
        });
        return send(call[0]);
    }

    /** Sends a command to the server that has the key. */
    Call say(byte[] key, Words words, Answer answer) {
        return send(new Call(key, words, NO_MATTER, answer));
    }

    @Override
    public void moved() {
        if (connector.isSingle()) {
            spots.values().forEach(spot -> {
                if (spot.current != null) {
                    spot.current.end(Verdict.SILENT);
                }
            });
            queue.moved();
        } else {
            look();
        }
    }

    /** The node that has a key, as far as is known. */
    @Nullable String nodeOf(byte[] key) {
        if (connector.isSingle()) {
            return "";
        }
        int slot = SlotHash.getSlot(key);
        Move move = moves.get(slot);
        if (move != null && Clock.now() < move.until) {
            return move.to;
        }
        moves.remove(slot);
        return connector.nodeOf(slot);
    }

    Call send(Call call) {
        String node = call.to != null ? call.to : nodeOf(call.key);
        if (isClosed) {
            call.arrive(null, new LeaseholdException.Closed());
        } else if (node == null) {
            lost.add(call);
            look();
        } else {
            spots.computeIfAbsent(node, Spot::new).send(call);
        }
        return call;
    }

    /** Finds out which node has which slot. */
    private void look() {
        if (connector.isSingle() || isClosed || Clock.now() - lookingSince < OPENS_WITHIN) {
            return;
        }
        lookingSince = Clock.now();
        Supplier<Boolean> work = () -> {
            connector.look();
            return true;
        };
        background(work, done -> turn.take(() -> looked(new IllegalStateException("no node has the slot of the lock"))), error -> turn.take(() -> {
            failure = error;
            looked(error);
        }));
    }

    private void looked(Throwable error) {
        lookingSince = -OPENS_WITHIN;
        List<Call> calls = List.copyOf(lost);
        lost.clear();
        for (Call call : calls) {
            if (nodeOf(call.key) == null) {
                call.arrive(null, error);
            } else {
                send(call);
            }
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
        String from = call.line.node;
        // A node that does not know its own address means the one that it was asked at.
        String to = words[2].startsWith(":") ? from.substring(0, from.lastIndexOf(':')) + words[2] : words[2];
        if (isMoved) {
            moves.put(SlotHash.getSlot(call.key), new Move(to, Clock.now() + MOVED_FOR));
            look();
        }
        call.to = to;
        call.isAsking = !isMoved;
        call.line = null;
        send(call);
        return true;
    }

    void listen(String node, Consumer<StatefulRedisPubSubConnection<byte[], byte[]>> opened, Consumer<Throwable> failed) {
        background(() -> connector.listen(node), opened, failed);
    }

    /** Opens a connection of its own to the server of a key, which ends with this. */
    CompletableFuture<Line> dedicated(byte[] key) {
        CompletableFuture<Line> opening = new CompletableFuture<>();
        String node = nodeOf(key);
        if (node == null) {
            look();
            opening.completeExceptionally(Verdict.SILENT);
            return opening;
        }
        background(() -> connector.connect(node), connection -> turn.take(() -> {
            Line line = new Line(node, connection);
            if (isClosed || !opening.complete(line)) {
                line.end(Verdict.SILENT);
            }
        }), error -> turn.take(() -> opening.completeExceptionally(error)));
        return opening;
    }

    /** Connecting blocks for as long as Lettuce likes: so it has a thread for that long. */
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
    public void silent(Try asked) {
        if (asked instanceof Call call && call.line != null) {
            spots.computeIfAbsent(call.line.node, Spot::new).silent(call.line);
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
        private final String node;
        private final Deque<Line> lingering = new ArrayDeque<>();
        private final List<Call> unsent = new ArrayList<>();
        private @Nullable Line current;
        private @Nullable Object opening;
        private long openingSince;

        private Spot(String node) {
            this.node = node;
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
                    () -> connector.connect(node),
                    connection -> turn.take(() -> opened(mine, new Line(node, connection))),
                    error -> turn.take(() -> {
                        if (opening == mine) {
                            opening = null;
                            failure = error;
                            moves.values().removeIf(move -> move.to.equals(node));
                            look();
                            unsent().forEach(call -> call.arrive(null, error));
                        }
                    }));
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
            queue.forget(node);
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
            if (lingering.size() > MOST_LINGERING) {
                lingering.remove().end(Verdict.SILENT);
            }
        }

        private List<Call> close() {
            opening = null;
            return unsent();
        }
    }

    /** A command, until it is answered or nobody waits for the answer. */
    final class Call implements Try {
        private final byte[] key;
        private final Words words;
        private final Fate fate;
        private final Answer answer;
        private boolean isOpen = true;
        private @Nullable List<Call> waitsIn;
        private @Nullable Line line;
        /** Where it is sent, if its key says otherwise. */
        private @Nullable String to;

        /** What it led to: who gives it up gives up that. */
        private @Nullable Try next;

        private boolean isAsking;
        private int moves;
        /** Whatever it gets is bound to its connection. */
        private boolean binds;

        Call(byte[] key, Words words, Fate fate, Answer answer) {
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

        @Nullable Line line() {
            return line;
        }
    }

    /** One connection, until it is cut. */
    final class Line implements RedisConnectionStateListener {
        final String node;
        private final StatefulRedisConnection<byte[], byte[]> connection;
        private final Set<Pending> pending = new LinkedHashSet<>();
        private final Set<Runnable> ends = new LinkedHashSet<>();
        private boolean isOpen = true;

        private record Pending(Call call, AsyncCommand<byte[], byte[], Object> command) {}

        private Line(String node, StatefulRedisConnection<byte[], byte[]> connection) {
            this.node = node;
            this.connection = connection;
            lines.add(this);
            connection.addListener(this);
        }

        /** False if it was cut. */
        boolean send(Call call) {
            if (!isOpen) {
                call.arrive(null, Verdict.SILENT);
                return false;
            }
            AsyncCommand<byte[], byte[], Object> command = call.words.command();
            Pending asked = new Pending(call, command);
            call.line = this;
            call.waitsIn = null;
            pending.add(asked);
            command.whenComplete((reply, error) -> turn.take(() -> {
                if (pending.remove(asked) && (error == null || !follows(call, error))) {
                    call.arrive(reply, error);
                }
            }));
            boolean isAsking = call.isAsking;
            turn.after(() -> {
                try {
                    if (isAsking) {
                        connection.dispatch(List.of(Words.of("ASKING").command(), command));
                    } else {
                        connection.dispatch(command);
                    }
                } catch (Throwable e) {
                    command.completeExceptionally(e);
                }
            });
            return true;
        }

        /** Sends one on this connection, wherever its key is. */
        Call say(byte[] key, Words words, Answer answer) {
            Call call = new Call(key, words, NO_MATTER, answer);
            call.moves = MOST_MOVES;
            send(call);
            return call;
        }

        boolean isOpen() {
            return isOpen;
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

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
            turn.take(() -> end(Verdict.SILENT));
        }

        void end(Throwable error) {
            if (!isOpen) {
                return;
            }
            isOpen = false;
            lines.remove(this);
            Spot spot = spots.get(node);
            if (spot != null) {
                spot.lingering.remove(this);
                if (spot.current == this) {
                    spot.current = null;
                }
            }
            List<Pending> missing = List.copyOf(pending);
            pending.clear();
            turn.after(() -> {
                // Lettuce does not send again what is done.
                missing.forEach(each -> each.command.cancel(false));
                connection.closeAsync();
            });
            missing.forEach(each -> each.call.arrive(null, error));
            tell();
        }

        private void tell() {
            List<Runnable> told = List.copyOf(ends);
            ends.clear();
            told.forEach(Runnable::run);
        }
    }
}
