package org.example.leasehold.adapter;

import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import org.example.leasehold.Detached;
import org.example.leasehold.Election;
import org.example.leasehold.Lease;
import org.example.leasehold.Leasehold;
import org.example.leasehold.LeaseholdException;
import org.example.leasehold.LockEvent;
import org.example.leasehold.LockInfo;
import org.example.leasehold.Loss;
import org.example.leasehold.NamedLock;
import org.example.leasehold.Options;
import org.example.leasehold.Settings;

/** The package for Java, as the driver of the conformance scenarios talks to it: one JSON object a line. */
public final class Adapter {
    private static final Gson GSON = new GsonBuilder().serializeNulls().disableHtmlEscaping().create();

    private final PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final ExecutorService threads = Executors.newCachedThreadPool(work -> {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        return thread;
    });
    private final Map<String, Lease> leases = new ConcurrentHashMap<>();
    private final Map<String, CompletableFuture<JsonObject>> works = new ConcurrentHashMap<>();
    private final Map<Long, CompletableFuture<?>> waits = new ConcurrentHashMap<>();
    private final Library library;
    private Leasehold locks;
    private volatile boolean isTold;

    private Adapter(Library library) {
        this.library = library;
    }

    /** What the package connects by. */
    interface Library {
        Leasehold open(JsonObject request, Settings settings) throws Exception;

        void close();
    }

    /** What the work threw. */
    private static final class WorkFailed extends Exception {
        private static final long serialVersionUID = 1;

        WorkFailed(String text) {
            super(text);
        }
    }

    /**
     * Reads requests until the input ends.
     *
     * @param args {@code lettuce} or {@code jedis}
     * @throws IOException if the input cannot be read
     */
    public static void main(String[] args) throws IOException {
        Adapter adapter = new Adapter(List.of(args).contains("jedis") ? new Jedis() : new Lettuce());
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            adapter.take(GSON.fromJson(line, JsonObject.class));
        }
    }

    private void take(JsonObject request) {
        // What later requests name is known in the order of the requests.
        if (text(request, "do").equals("run")) {
            works.put(text(request, "lease"), new CompletableFuture<>());
        }
        Runnable work = () -> {
            JsonObject reply = new JsonObject();
            reply.add("id", request.get("id"));
            try {
                reply.add("ok", answer(request));
            } catch (Throwable error) {
                reply.add("error", trouble(error));
            }
            write(reply);
        };
        if (text(request, "do").equals("cancel")) {
            work.run();
        } else {
            threads.execute(work);
        }
    }

    private synchronized void write(JsonObject line) {
        out.println(GSON.toJson(line));
    }

    static String text(JsonObject from, String field) {
        return from.get(field).getAsString();
    }

    private static Duration millis(JsonObject from, String field) {
        return Duration.ofMillis(from.get(field).getAsLong());
    }

    static boolean has(JsonObject from, String field) {
        return from.has(field) && !from.get(field).isJsonNull();
    }

    private JsonElement answer(JsonObject request) throws Exception {
        Lease lease = has(request, "lease") ? leases.get(text(request, "lease")) : null;
        return switch (text(request, "do")) {
            case "open" -> open(request);
            case "acquire" -> held(request, wait(request, lock(request).acquireAsync(options(request))));
            case "try" -> held(request, wait(request, lock(request).tryAcquireAsync(options(request))));
            case "run" -> run(request);
            case "finish" -> {
                works.get(text(request, "lease")).complete(request);
                yield new JsonObject();
            }
            case "cancel" -> {
                cancel(request.get("request").getAsLong());
                yield new JsonObject();
            }
            case "state" -> state(lease);
            case "block" -> block(request, lease);
            case "extend" -> extended(lease.extendAsync(millis(request, "ttl")));
            case "extend_by" -> extended(lease.extendByAsync(millis(request, "by")));
            case "release", "resign" -> outcome(lease.release().name());
            case "upgrade" -> shared(request, lease, lease.upgrade());
            case "downgrade" -> {
                lease.downgrade();
                yield shared(request, lease, true);
            }
            case "guard" -> guard(request, lease);
            case "detach" -> {
                JsonObject ok = new JsonObject();
                ok.addProperty("text", lease.detach().toString());
                yield ok;
            }
            case "adopt" -> held(request, locks.adoptAsync(Detached.parse(text(request, "text"))).get());
            case "info" -> info(locks.info(text(request, "name")));
            case "holders" -> list(locks.holdersAsync(text(request, "name")), holder -> Map.of("owner", holder.owner(), "fence", fence(holder.fence())));
            case "waiters" -> list(locks.waitersAsync(text(request, "name")), waiter -> Map.of("owner", waiter.owner()));
            case "top" -> list(locks.topAsync(10, ""), lock -> Map.of("name", lock.name(), "waits", lock.waits()));
            case "log" -> list(locks.logAsync(10, ""), entry -> Map.of("event", entry.event(), "name", entry.name()));
            case "campaign" -> {
                Election election = locks.election(text(request, "name"), text(request, "candidate"));
                yield held(request, wait(request, election.campaignAsync(options(request))));
            }
            case "leader" -> leader(locks.election(text(request, "name"), "").leader());
            case "observe" -> {
                String observer = text(request, "observer");
                locks.election(text(request, "name"), "").observe(leader -> tellLeader(observer, leader));
                yield new JsonObject();
            }
            case "events" -> {
                isTold = true;
                yield new JsonObject();
            }
            case "close" -> close(millis(request, "limit"));
            default -> throw new UnsupportedOperationException("there is no " + text(request, "do"));
        };
    }

    private void cancel(long id) throws InterruptedException {
        CompletableFuture<?> wait = waits.computeIfAbsent(id, key -> new CompletableFuture<>());
        wait.cancel(true);
    }

    /** It may have been cancelled before it began. */
    private <T> T wait(JsonObject request, CompletableFuture<T> asked) throws Exception {
        long id = request.get("id").getAsLong();
        CompletableFuture<?> cancelled = waits.put(id, asked);
        if (cancelled != null) {
            asked.cancel(true);
        }
        try {
            return asked.get();
        } finally {
            waits.remove(id);
        }
    }

    private JsonElement open(JsonObject request) throws Exception {
        locks = library.open(request, settings(request));
        return new JsonObject();
    }

    private Settings settings(JsonObject request) {
        Settings settings = Settings.defaults().executor(threads).onEvent(this::tellStep);
        if (!has(request, "settings")) {
            return settings;
        }
        JsonObject given = request.getAsJsonObject("settings");
        if (has(given, "prefix")) {
            settings = settings.prefix(text(given, "prefix"));
        }
        if (has(given, "queue")) {
            settings = settings.queue(given.get("queue").getAsBoolean());
        }
        if (has(given, "wait_connections")) {
            settings = settings.waitConnections(given.get("wait_connections").getAsInt());
        }
        Map<String, Function<Settings, Function<Duration, Settings>>> durations = Map.of(
                "ttl", to -> to::ttl,
                "wait", to -> to::patience,
                "response", to -> to::response,
                "within", to -> to::within,
                "unreachable_after", to -> to::unreachableAfter,
                "slice", to -> to::slice);
        for (var each : durations.entrySet()) {
            if (has(given, each.getKey())) {
                settings = each.getValue().apply(settings).apply(millis(given, each.getKey()));
            }
        }
        return settings;
    }

    private void tellStep(LockEvent step) {
        if (isTold) {
            JsonObject event = new JsonObject();
            event.addProperty("event", "step");
            event.addProperty("step", lower(step.step().name()));
            event.addProperty("name", step.name());
            write(event);
        }
    }

    private void tellLeader(String observer, Election.Leader leader) {
        JsonObject event = new JsonObject();
        event.addProperty("event", "leader");
        event.addProperty("observer", observer);
        event.addProperty("candidate", leader == null ? null : leader.candidate());
        event.addProperty("fence", leader == null ? null : fence(leader.fence()));
        write(event);
    }

    private static String fence(long fence) {
        return Long.toString(fence);
    }

    private static JsonElement leader(Election.Leader leader) {
        return leader == null ? JsonNull.INSTANCE : GSON.toJsonTree(Map.of("candidate", leader.candidate(), "fence", fence(leader.fence())));
    }

    private static JsonElement info(LockInfo info) {
        if (info == null) {
            return JsonNull.INSTANCE;
        }
        JsonObject ok = new JsonObject();
        ok.addProperty("holder", info.oldest().owner());
        ok.addProperty("fence", fence(info.oldest().fence()));
        ok.addProperty("holders", info.holders());
        ok.addProperty("waiters", info.waiters() < 0 ? null : info.waiters());
        return ok;
    }

    private static <T> JsonElement list(CompletableFuture<List<T>> asked, Function<T, Map<String, ?>> row) throws Exception {
        JsonArray rows = new JsonArray();
        asked.get().forEach(each -> rows.add(GSON.toJsonTree(row.apply(each))));
        return rows;
    }

    private JsonElement shared(JsonObject request, Lease lease, boolean isHeld) {
        return isHeld ? described(lease) : held(request, null);
    }

    private static JsonElement guard(JsonObject request, Lease lease) throws Exception {
        List<String> words = new ArrayList<>();
        request.getAsJsonArray("command").forEach(word -> words.add(word.getAsString()));
        JsonObject ok = new JsonObject();
        ok.add("reply", GSON.toJsonTree(lease.guard(words.toArray())));
        return ok;
    }

    private NamedLock lock(JsonObject request) {
        if (has(request, "name_hex")) {
            return locks.write(HexFormat.of().parseHex(text(request, "name_hex")));
        }
        String name = text(request, "name");
        if (has(request, "also")) {
            JsonArray also = request.getAsJsonArray("also");
            String[] names = new String[also.size() + 1];
            names[0] = name;
            for (int i = 0; i < also.size(); i++) {
                names[i + 1] = also.get(i).getAsString();
            }
            return locks.several(names);
        }
        return switch (has(request, "mode") ? text(request, "mode") : "write") {
            case "read" -> locks.read(name);
            case "semaphore" -> locks.semaphore(name, request.get("permits").getAsInt());
            default -> locks.write(name);
        };
    }

    private static Options options(JsonObject request) {
        Options options = Options.none();
        if (has(request, "ephemeral")) {
            options = options.ephemeral(millis(request, "ephemeral"));
        }
        if (has(request, "replicas")) {
            options = options.replicas(request.get("replicas").getAsInt(), millis(request, "replicas_within"));
        }
        if (has(request, "ttl")) {
            options = options.ttl(millis(request, "ttl"));
        }
        if (has(request, "wait")) {
            options = options.patience(millis(request, "wait"));
        }
        if (has(request, "hold_at_least")) {
            options = options.holdAtLeast(millis(request, "hold_at_least"));
        }
        if (has(request, "owner")) {
            options = options.owner(text(request, "owner"));
        }
        if (has(request, "renew")) {
            JsonElement renew = request.get("renew");
            boolean isNumber = renew.getAsJsonPrimitive().isNumber();
            if (isNumber || !renew.getAsBoolean()) {
                options = options.renewFor(Duration.ofMillis(isNumber ? renew.getAsLong() : 0));
            }
        }
        return options;
    }

    private JsonElement run(JsonObject request) throws Exception {
        String id = text(request, "lease");
        Options options = options(request);
        NamedLock lock = lock(request);
        CompletableFuture<JsonElement> done = new CompletableFuture<>();
        Thread thread = new Thread(() -> {
            try {
                done.complete(lock.<JsonElement, Exception>call(options, lease -> {
                    keep(id, lease);
                    JsonObject working = new JsonObject();
                    working.addProperty("event", "working");
                    working.addProperty("lease", id);
                    working.addProperty("fence", Long.toString(lease.fence()));
                    write(working);
                    JsonObject finish = works.get(id).get();
                    if (has(finish, "error")) {
                        throw new WorkFailed(text(finish, "error"));
                    }
                    return finish.has("result") ? finish.get("result") : JsonNull.INSTANCE;
                }));
            } catch (InterruptedException e) {
                done.cancel(true);
            } catch (Throwable e) {
                done.completeExceptionally(e);
            }
        });
        done.whenComplete((result, error) -> {
            if (done.isCancelled()) {
                thread.interrupt();
            }
        });
        thread.setDaemon(true);
        thread.start();
        JsonObject ok = new JsonObject();
        ok.add("result", wait(request, done));
        return ok;
    }

    private JsonElement held(JsonObject request, Lease lease) {
        if (lease == null) {
            JsonObject ok = new JsonObject();
            ok.addProperty("held", false);
            return ok;
        }
        keep(text(request, "lease"), lease);
        return described(lease);
    }

    private static JsonElement described(Lease lease) {
        JsonObject ok = new JsonObject();
        ok.addProperty("held", true);
        ok.addProperty("fence", fence(lease.fence()));
        ok.addProperty("owner", lease.owner());
        ok.addProperty("valid_for", lease.validFor().toMillis());
        return ok;
    }

    private void keep(String id, Lease lease) {
        leases.put(id, lease);
        lease.onLost(lost -> {
            JsonObject event = new JsonObject();
            event.addProperty("event", "lost");
            event.addProperty("lease", id);
            event.addProperty("loss", lower(lost.loss().name()));
            write(event);
        });
    }

    private static String lower(String name) {
        return name.toLowerCase(Locale.ROOT);
    }

    private static JsonElement state(Lease lease) {
        JsonObject state = new JsonObject();
        Loss loss = lease.loss();
        state.addProperty("valid_for", lease.validFor().toMillis());
        state.addProperty("loss", loss == null ? null : lower(loss.name()));
        return state;
    }

    /** Stops the whole program: no thread runs meanwhile. */
    private JsonElement block(JsonObject request, Lease lease) throws Exception {
        double seconds = request.get("for").getAsLong() / 1000.0;
        long pid = ProcessHandle.current().pid();
        String script = String.format(Locale.ROOT, "kill -STOP %d; sleep %.3f; kill -CONT %d", pid, seconds, pid);
        long begun = System.nanoTime();
        new ProcessBuilder("sh", "-c", script).start();
        // The signal may arrive a moment later.
        while (System.nanoTime() - begun < seconds * 1e9) {
            Thread.onSpinWait();
        }
        return state(lease);
    }

    private static JsonElement outcome(String outcome) {
        JsonObject ok = new JsonObject();
        ok.addProperty("outcome", lower(outcome));
        return ok;
    }

    private static JsonElement extended(CompletableFuture<Void> asked) throws Exception {
        try {
            asked.get();
            return outcome("extended");
        } catch (ExecutionException e) {
            if (e.getCause() instanceof LeaseholdException.Lost) {
                return outcome("lost");
            }
            throw e;
        }
    }

    private JsonElement close(Duration limit) throws Exception {
        List<String> left = locks.closeAsync(limit).get();
        library.close();
        JsonObject ok = new JsonObject();
        ok.add("left", GSON.toJsonTree(left));
        return ok;
    }

    private static JsonObject trouble(Throwable error) {
        Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
        JsonObject told = new JsonObject();
        told.addProperty("kind", kind(cause));
        told.addProperty("code", cause instanceof LeaseholdException.Refused refused ? refused.code() : "");
        told.addProperty("text", String.valueOf(cause.getMessage()));
        return told;
    }

    private static String kind(Throwable error) {
        if (error instanceof LeaseholdException.Refused refused) {
            return switch (refused.code()) {
                case "MODULE" -> "needs the module";
                case "NOPERM" -> "not permitted";
                case "NOAUTH", "WRONGPASS" -> "wrong password";
                case "OOM" -> "out of memory";
                case "READONLY" -> "read only";
                case "QUEUEFULL" -> "queue full";
                case "WRONGTYPE" -> "wrong type";
                default -> "refused";
            };
        }
        if (error instanceof LeaseholdException.Unanswered) {
            return "unanswered";
        }
        Map<Class<?>, String> kinds = Map.of(
                CancellationException.class, "cancelled",
                WorkFailed.class, "work",
                UnsupportedOperationException.class, "unsupported",
                IllegalArgumentException.class, "setting",
                LeaseholdException.Busy.class, "busy",
                LeaseholdException.Closed.class, "closed",
                LeaseholdException.TooLate.class, "too late",
                LeaseholdException.Lost.class, "lost",
                LeaseholdException.TooFewReplicas.class, "too few replicas",
                LeaseholdException.Unreachable.class, "unreachable");
        return kinds.getOrDefault(error.getClass(), "not of the package: " + error);
    }
}
