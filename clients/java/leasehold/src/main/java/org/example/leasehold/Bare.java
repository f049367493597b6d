package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A server without the module, and a user without scripts: {@code SET … IFEQ}, of Redis 8.4 and Valkey 8.1 and newer, on the
 * same keys with the same values.
 *
 * <pre>
 * SET lock 0:owner NX   ──►   INCR fence   ──►   SET lock fence:owner IFEQ 0:owner
 * </pre>
 *
 * The number is counted while nobody else can have the lock, so fences grow as with scripts, which they are ahead of or
 * follow; at first it is the server's clock. If the lease runs out meanwhile, the last step fails, and the number is nobody's.
 * There is no such thing for several locks. And a lock that is granted while the server is given the module passes by the
 * queue, for as long as the server is taken to have none.
 */
final class Bare implements Grantor.Try {
    /** Smaller ones are no clocks: the last fence was forgotten. */
    private static final long LEAST_CLOCK = 1_000_000_000_000_000L;
    private static final int MOST_LOOKS = 3;
    private static final Pattern RUNS_SCRIPTS = Pattern.compile("\\b(eval|evalsha)\\b", Pattern.CASE_INSENSITIVE);
    private static final Pattern WRITTEN = Pattern.compile("\\d{16}:.*", Pattern.DOTALL);

    private final Link link;
    private final Claim claim;
    private final Claim.Question question;
    private final Grantor.Fate fate;
    private final Grantor.Answer answer;
    private final byte[] key;
    private final String owner;
    private final String pending;
    private Link.@Nullable Call current;
    private boolean isOver;

    Bare(Link link, Claim claim, Claim.Question question, Grantor.Fate fate, Grantor.Answer answer) {
        this.link = link;
        this.claim = claim;
        this.question = question;
        this.fate = fate;
        this.answer = answer;
        this.key = claim.key();
        this.owner = Script.text(claim.owner());
        this.pending = pending(claim);
    }

    /** Whether a script was refused for what it is, and not for what it does. */
    static boolean isWithoutScripts(Throwable error) {
        boolean isRefused = "NOPERM".equals(Verdict.code(error)) || Verdict.of(error) == Verdict.UNKNOWN_COMMAND;
        return isRefused && RUNS_SCRIPTS.matcher(Verdict.said(error)).find();
    }

    Bare start() {
        dialogue().whenComplete((reply, error) -> {
            Throwable cause = error instanceof CompletionException && error.getCause() != null ? error.getCause() : error;
            if (!isOver) {
                isOver = true;
                answer.came(reply, cause);
            }
        });
        return this;
    }

    /** What is granted before it has a number. */
    private static String pending(Claim claim) {
        return "0".repeat(16) + ":" + Script.text(claim.owner());
    }

    /** Ends what a server is granting that has not read the request yet. */
    static List<byte[]> lastWord(Claim claim) {
        byte[] pending = latin(pending(claim));
        return Words.of("SET", claim.key(), pending, "IFEQ", pending, "PX", 1);
    }

    /** Nothing is asked after the question under way. */
    @Override
    public void giveUp() {
        isOver = true;
        if (current != null) {
            current.giveUp();
        }
    }

    @Override
    public boolean isSent() {
        return line() != null;
    }

    @Override
    public Link.@Nullable Line line() {
        return current == null ? null : current.line();
    }

    private CompletableFuture<@Nullable Object> send(Object... words) {
        CompletableFuture<@Nullable Object> came = new CompletableFuture<>();
        current = link.say(key, Words.of(words), fate, (reply, error) -> Futures.<@Nullable Object>complete(came, reply, error));
        return came;
    }

    private static CompletableFuture<@Nullable Object> is(@Nullable Object value) {
        return CompletableFuture.completedFuture(value);
    }

    private CompletableFuture<@Nullable Object> dialogue() {
        if (claim.keys().size() > 1) {
            return CompletableFuture.failedFuture(LeaseholdException.Refused.needsModule("several locks without scripts"));
        }
        byte[] ttl = Claim.millis(question.ttl());
        return switch (question.asks()) {
            case ACQUIRE, TICKET, WAIT -> acquire(ttl, MOST_LOOKS);
            case EXTEND -> {
                String held = Script.value(question.fence(), owner);
                yield number(setIf(key, held, held, ttl));
            }
            case RELEASE -> question.fence() != 0
                    ? remove(Script.value(question.fence(), owner))
                    : held().thenCompose(held -> held == null ? is(0L) : remove(held));
            case RAISE -> CompletableFuture.failedFuture(
                    LeaseholdException.Refused.needsModule("one of several servers without scripts"));
        };
    }

    private CompletableFuture<@Nullable Object> acquire(byte[] ttl, int looks) {
        return send("SET", key, latin(pending), "NX", "PX", ttl)
                .thenCompose(set -> set != null ? CompletableFuture.<@Nullable String>completedFuture(pending) : held())
                .thenCompose(held -> {
                    if (owner.equals(held)) {
                        return is(0L);
                    }
                    if (pending.equals(held)) {
                        return count().thenCompose(
                                fence -> setIf(key, Script.value(fence, owner), pending, ttl).thenApply(set -> set ? fence : null));
                    }
                    if (held != null) {
                        return setIf(key, held, held, ttl).thenApply(set -> set ? Long.parseLong(held.substring(0, 16)) : null);
                    }
                    // It may have ended in between.
                    return send("GET", key).thenCompose(other -> other != null || looks == 1 ? is(null) : acquire(ttl, looks - 1));
                });
    }

    /** A number larger than all before, unless the last one was a day ago: then the clock is ahead of it. */
    private CompletableFuture<Long> count() {
        byte[] last = Script.beside(key);
        return send("INCR", last).thenCompose(came -> {
            Long number = Request.number(came);
            if (number == null || number >= LEAST_CLOCK) {
                return CompletableFuture.completedFuture(number == null ? 0L : number);
            }
            return send("TIME").thenCompose(parts -> {
                List<?> time = (List<?>) parts;
                Long seconds = Request.number(time.get(0));
                Long micros = Request.number(time.get(1));
                long clock = seconds * 1_000_000 + micros + Script.MARGIN;
                return setIf(last, Long.toString(clock), Long.toString(number), Script.DAY)
                        .thenCompose(set -> set ? CompletableFuture.completedFuture(clock) : count());
            });
        });
    }

    private CompletableFuture<Boolean> setIf(byte[] key, String to, String from, byte[] ttl) {
        return send("SET", key, latin(to), "IFEQ", latin(from), "PX", ttl).thenApply(reply -> reply != null);
    }

    private static CompletableFuture<@Nullable Object> number(CompletableFuture<Boolean> is) {
        return is.thenApply(yes -> yes ? 1L : 0L);
    }

    /** What the key holds, if that is a lock of this owner. */
    private CompletableFuture<@Nullable String> held() {
        return send("GET", key).thenApply(reply -> {
            String held = reply instanceof byte[] bytes ? Script.text(bytes) : null;
            boolean isIts = held != null && (held.equals(owner) || WRITTEN.matcher(held).matches() && held.substring(17).equals(owner));
            return isIts ? held : null;
        });
    }

    /** By the word that this server has for it, and this user may use; or else it ends in a moment. */
    private CompletableFuture<@Nullable Object> remove(String held) {
        return orElse(
                send("DELEX", key, "IFEQ", latin(held)),
                () -> orElse(send("DELIFEQ", key, latin(held)), () -> number(setIf(key, held, held, Claim.ascii(1)))));
    }

    private interface Other {
        CompletableFuture<@Nullable Object> way();
    }

    private static CompletableFuture<@Nullable Object> orElse(CompletableFuture<@Nullable Object> one, Other other) {
        return one.handle((reply, error) -> {
            boolean isOther = error != null && (Verdict.of(error) == Verdict.UNKNOWN_COMMAND || "NOPERM".equals(Verdict.code(error)));
            return isOther ? other.way() : one;
        }).thenCompose(way -> way);
    }

    private static byte[] latin(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }
}
