package org.example.leasehold;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.EnumSet;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * The connection to the server of the locks, which is opened when it is needed. All is done in turn.
 *
 * <p>Lettuce connects again by itself, and sends again what was not answered. Here a connection ends when it is cut: what was
 * not answered is asked for again by those who still want it.
 */
final class Link {
    /** How to connect. Both calls block. */
    interface Connector {
        StatefulRedisConnection<byte[], byte[]> connect();

        StatefulRedisPubSubConnection<byte[], byte[]> listen();
    }

    /** For how long a server that had no module is taken to have none. It may have been replaced. */
    private static final long PLAIN_FOR = 10_000_000_000L;
    /** Longer than any server needs that is there. */
    private static final long OPENS_WITHIN = 5_000_000_000L;
    /** How many silent connections stay open at a time, to hear late answers. */
    private static final int MOST_LINGERING = 4;

    private final Turn turn;
    private final Connector connector;
    private final Deque<Line> lingering = new ArrayDeque<>();
    private final List<Call> unsent = new ArrayList<>();
    private final Set<Script> known = EnumSet.noneOf(Script.class);
    /** Told when the server is not the one that grants locks. */
    private Runnable moved = () -> {};
    private @Nullable Line current;
    private @Nullable Object opening;
    private long openingSince;
    private @Nullable Throwable failure;
    private long plainUntil;
    private boolean isClosed;

    Link(Turn turn, Connector connector) {
        this.turn = turn;
        this.connector = connector;
    }

    void whenMoved(Runnable moved) {
        this.moved = moved;
    }

    boolean isPlain() {
        return plainUntil != 0 && Clock.now() < plainUntil;
    }

    Words words(Claim claim, Claim.Question question) {
        if (!isPlain()) {
            return claim.words(question);
        }
        Script script = Script.of(question);
        return script.words(claim, question, known.contains(script));
    }

    /** Told that a question was answered: the script that it was asked by is known. */
    void answered(Words words, Claim.Question question) {
        if (words.name() == Words.Name.EVAL) {
            known.add(Script.of(question));
        }
    }

    /** Whether it is to be asked in other words. */
    boolean learns(Throwable error) {
        switch (Verdict.of(error)) {
            case UNKNOWN_COMMAND -> plainUntil = Clock.now() + PLAIN_FOR;
            case HAS_MODULE -> plainUntil = 0;
            case UNKNOWN_SCRIPT -> known.clear();
            default -> {
                return false;
            }
        }
        return true;
    }

    LeaseholdException told(Throwable error) {
        return Verdict.told(error, failure);
    }

    /** The server does not grant locks any more: the one that does is looked for. */
    void moved() {
        if (current != null) {
            current.end(Verdict.SILENT);
        }
        moved.run();
    }

    void send(Call call) {
        if (isClosed) {
            call.arrive(null, new LeaseholdException.Closed());
        } else if (current != null) {
            current.send(call);
        } else {
            unsent.add(call);
            if (opening == null || Clock.now() - openingSince > OPENS_WITHIN) {
                open();
            }
        }
    }

    private void open() {
        Object mine = new Object();
        opening = mine;
        openingSince = Clock.now();
        background(connector::connect, connection -> turn.take(() -> opened(mine, new Line(connection))), error -> turn.take(() -> {
            if (opening == mine) {
                opening = null;
                failure = error;
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
        unsent().forEach(line::send);
    }

    private List<Call> unsent() {
        List<Call> calls = List.copyOf(unsent);
        unsent.clear();
        return calls;
    }

    void listen(Consumer<StatefulRedisPubSubConnection<byte[], byte[]>> opened, Consumer<Throwable> failed) {
        background(connector::listen, opened, failed);
    }

    /** Connecting blocks for as long as Lettuce likes: so it has a thread for that long. */
    private <T> void background(Supplier<T> work, Consumer<T> done, Consumer<Throwable> failed) {
        turn.after(() -> {
            Thread thread = new Thread(() -> {
                T result;
                try {
                    result = work.get();
                } catch (RuntimeException e) {
                    failed.accept(e);
                    return;
                }
                done.accept(result);
            }, "leasehold-connect");
            thread.setDaemon(true);
            thread.start();
        });
    }

    /** Told of a line on which an answer is overdue. */
    void silent(@Nullable Line line) {
        if (line == null || line != current) {
            return;
        }
        current = null;
        lingering.add(line);
        if (lingering.size() > MOST_LINGERING) {
            lingering.remove().end(Verdict.SILENT);
        }
    }

    void close() {
        isClosed = true;
        opening = null;
        unsent().forEach(call -> call.arrive(null, new LeaseholdException.Closed()));
        List<Line> lines = new ArrayList<>(lingering);
        if (current != null) {
            lines.add(current);
        }
        lines.forEach(line -> line.end(new LeaseholdException.Closed()));
    }

    /** A command, until it is answered or nobody waits for the answer. */
    final class Call {
        private final Words words;
        private final @Nullable Attempt attempt;
        private final Answer answer;
        private boolean isOpen = true;
        private @Nullable Line line;

        interface Answer {
            void came(@Nullable Object reply, @Nullable Throwable error);
        }

        /** The attempt is told what becomes of it when it is not answered in time. */
        Call(Words words, @Nullable Attempt attempt, Answer answer) {
            this.words = words;
            this.attempt = attempt;
            this.answer = answer;
        }

        private void arrive(@Nullable Object reply, @Nullable Throwable error) {
            boolean isHeard = error == null || Verdict.code(error) != null;
            if (isOpen) {
                isOpen = false;
                if (!isHeard) {
                    left();
                }
                answer.came(reply, error);
            } else if (isHeard && attempt != null) {
                attempt.late();
            }
        }

        /** Nobody waits for the answer any more. */
        void giveUp() {
            if (isOpen) {
                isOpen = false;
                unsent.remove(this);
                left();
            }
        }

        private void left() {
            if (attempt != null && line != null) {
                attempt.left(line);
            }
        }

        @Nullable Line line() {
            return line;
        }
    }

    /** One connection, until it is cut. */
    final class Line implements RedisConnectionStateListener {
        private final StatefulRedisConnection<byte[], byte[]> connection;
        private final Set<Pending> pending = new LinkedHashSet<>();
        private boolean isOpen = true;

        private record Pending(Call call, AsyncCommand<byte[], byte[], Object> command) {}

        private Line(StatefulRedisConnection<byte[], byte[]> connection) {
            this.connection = connection;
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
            pending.add(asked);
            command.whenComplete((reply, error) -> turn.take(() -> {
                if (pending.remove(asked)) {
                    call.arrive(reply, error);
                }
            }));
            turn.after(() -> {
                try {
                    connection.dispatch(command);
                } catch (RuntimeException e) {
                    command.completeExceptionally(e);
                }
            });
            return true;
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
            turn.take(() -> end(Verdict.SILENT));
        }

        private void end(Throwable error) {
            if (!isOpen) {
                return;
            }
            isOpen = false;
            lingering.remove(this);
            if (current == this) {
                current = null;
            }
            List<Pending> missing = List.copyOf(pending);
            pending.clear();
            turn.after(() -> {
                // Lettuce does not send again what is done.
                missing.forEach(each -> each.command.cancel(false));
                connection.closeAsync();
            });
            missing.forEach(each -> each.call.arrive(null, error));
        }
    }
}
