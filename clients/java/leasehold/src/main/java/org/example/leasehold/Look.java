package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What the server knows of locks: who holds and who waits, which are contended, and what went wrong. All is done in turn. */
final class Look {
    /** How often a server without the module is asked at most while the lock changes hands. */
    private static final int MOST_LOOKS = 5;
    private static final Pattern WRITTEN = Pattern.compile("(\\d{16}):(.*)", Pattern.DOTALL);

    private final Core core;
    private final Link link;
    private final byte[] key;

    Look(Core core, byte[] key) {
        this.core = core;
        this.link = core.link();
        this.key = key;
    }

    /** The LeaseholdException that it fails with is told as it is. */
    CompletableFuture<@Nullable Object> read(List<byte[]> words) {
        CompletableFuture<@Nullable Object> done = new CompletableFuture<>();
        long until = Clock.add(Clock.now(), core.settings.within);
        Request.read(core, link, key, words, core.settings.response, until, (answer, error) -> core.turn.after(
                        () -> Futures.<@Nullable Object>complete(done, answer == null ? null : answer.reply(), error)))
                .start();
        return done;
    }

    /** Null: it is free. */
    CompletableFuture<@Nullable LockInfo> info() {
        if (link.isPlain(key)) {
            return plainly(MOST_LOOKS);
        }
        return read(Words.of("LOCK.INFO", key)).handle((reply, error) -> {
            if (error instanceof LeaseholdException told && Verdict.isUnknownCommand(told)) {
                return core.turn.get(() -> plainly(MOST_LOOKS));
            }
            return Look.<@Nullable LockInfo>done(error, () -> {
                Row row = reply == null ? null : new Row(reply);
                return row == null ? null : new LockInfo(row.holder(), (int) Math.max(1, row.number("holders")), (int) row.number("waiters"));
            });
        }).thenCompose(info -> info);
    }

    private interface Result<T> {
        T get();
    }

    private static <T extends @Nullable Object> CompletableFuture<T> done(@Nullable Throwable error, Result<T> result) {
        return error != null ? CompletableFuture.failedFuture(error) : CompletableFuture.completedFuture(result.get());
    }

    /** The value once more, to see that the time belongs to it. */
    private CompletableFuture<@Nullable LockInfo> plainly(int looks) {
        CompletableFuture<@Nullable Object> before = read(Words.of("GET", key));
        CompletableFuture<@Nullable Object> left = read(Words.of("PTTL", key));
        CompletableFuture<@Nullable Object> after = read(Words.of("GET", key));
        return CompletableFuture.allOf(before, left, after).handle((done, error) -> {
            if (error != null) {
                return CompletableFuture.<@Nullable LockInfo>failedFuture(error.getCause() != null ? error.getCause() : error);
            }
            String value = text(before.join());
            long millis = left.join() instanceof Long number ? number : 0;
            if (before.join() == null || millis == -2) {
                return CompletableFuture.<@Nullable LockInfo>completedFuture(null);
            }
            if (!value.equals(text(after.join()))) {
                return looks > 1
                        ? core.turn.get(() -> plainly(looks - 1))
                        : CompletableFuture.<@Nullable LockInfo>failedFuture(new LeaseholdException.Unreachable(
                                new IllegalStateException("the lock changes hands all the time")));
            }
            Matcher parts = WRITTEN.matcher(value);
            boolean isOurs = parts.matches();
            String owner = isOurs ? parts.group(2) : value;
            long fence = isOurs ? Long.parseLong(parts.group(1)) : 0;
            HolderInfo holder = new HolderInfo(owner, fence, lasting(millis), 1);
            return CompletableFuture.<@Nullable LockInfo>completedFuture(new LockInfo(holder, 1, -1));
        }).thenCompose(info -> info);
    }

    /** What a command lists: fields by their names, with those that later versions of the module have. */
    <T> CompletableFuture<List<T>> list(Function<Row, T> read, String command, Object... rest) {
        List<byte[]> words = Words.of(rest);
        words.add(0, Claim.bytes(command));
        return read(words).handle((reply, error) -> {
            if (error instanceof LeaseholdException told && Verdict.isUnknownCommand(told)) {
                return CompletableFuture.<List<T>>failedFuture(LeaseholdException.Refused.needsModule(command));
            }
            return done(error, () -> {
                List<T> all = new ArrayList<>();
                for (Object row : reply instanceof List<?> rows ? rows : List.of()) {
                    all.add(read.apply(new Row(row)));
                }
                return all;
            });
        }).thenCompose(all -> all);
    }

    private static String text(@Nullable Object reply) {
        return reply instanceof byte[] bytes ? new String(bytes, StandardCharsets.UTF_8) : "";
    }

    private static @Nullable Duration lasting(long millis) {
        return millis < 0 ? null : Duration.ofMillis(millis);
    }

    /** Fields by their names. */
    static final class Row {
        private final Map<String, @Nullable Object> fields = new HashMap<>();

        Row(Object reply) {
            List<?> words = reply instanceof List<?> list ? list : List.of();
            for (int at = 0; at + 1 < words.size(); at += 2) {
                fields.put(Look.text(words.get(at)), words.get(at + 1));
            }
        }

        String text(String field) {
            return Look.text(fields.get(field));
        }

        long number(String field) {
            Long number = Request.number(fields.get(field));
            return number == null ? 0 : number;
        }

        private Duration millis(String field) {
            return Duration.ofMillis(number(field));
        }

        HolderInfo holder() {
            return new HolderInfo(text("owner"), number("fence"), lasting(number("ttl")), fields.containsKey("share") ? (int) number("share") : 1);
        }

        WaiterInfo waiter() {
            return new WaiterInfo(
                    text("owner"), millis("waited"), lasting(number("patience")), (int) number("share"), text("kind"), (int) number("locks"));
        }

        Contention contention() {
            return new Contention(
                    text("key"), (int) number("db"), number("waits"), number("refused"), millis("wait-total"), millis("wait-longest"), number("missed"));
        }

        LogEntry entry() {
            Instant time = Instant.ofEpochMilli(number("time"));
            return new LogEntry(number("id"), time, text("event"), (int) number("db"), text("key"), text("owner"), millis("ms"));
        }
    }
}
