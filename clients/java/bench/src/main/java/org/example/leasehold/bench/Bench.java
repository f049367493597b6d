package org.example.leasehold.bench;

import com.sun.management.OperatingSystemMXBean;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisURI;
import io.lettuce.core.api.sync.RedisCommands;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.ToDoubleFunction;

/**
 * Compares the package with other libraries for locks, side by side: all take turns in each round. A round before the first is
 * not counted, since a virtual machine is slow at first.
 *
 * <pre>
 * mvn -pl bench -am -DskipTests package
 * java -jar bench/target/bench.jar --server redis://127.0.0.1:6379 --rounds 9 --time 1.5
 * </pre>
 *
 * <p>{@code --only} names libraries, separated by semicolons; {@code --check} fails if the package has too few of the grants of
 * Redisson's fair lock.
 */
final class Bench {
    /** Grants of the package to those of Redisson's fair lock. */
    private static final double LEAST_RATIO = 1.5;

    private static final String COUNTER = "bench:counter";
    private static final int WORKERS = 16;
    private static final OperatingSystemMXBean MACHINE = ManagementFactory.getPlatformMXBean(OperatingSystemMXBean.class);

    private final RedisCommands<String, String> server;
    private final double seconds;
    private final int workers;
    /** They stay, since some libraries have things of their own for each thread. */
    private final ExecutorService threads;

    private Bench(RedisCommands<String, String> server, double seconds, int workers) {
        this.server = server;
        this.seconds = seconds;
        this.workers = workers;
        this.threads = Executors.newFixedThreadPool(workers);
    }

    /** What one library came to in one round. */
    private record Figure(double grants, double longest, double cpu, double commands) {}

    public static void main(String[] words) throws Exception {
        List<String> given = Arrays.asList(words);
        RedisURI uri = RedisURI.create(option(given, "--server", "redis://127.0.0.1:6379"));
        int rounds = Integer.parseInt(option(given, "--rounds", "9"));
        double seconds = Double.parseDouble(option(given, "--time", "1.5"));
        String only = option(given, "--only", "");
        boolean isEnough;
        try (RedisClient client = RedisClient.create(uri)) {
            List<Library> all = Libraries.all(client, uri);
            List<Library> libraries = all.stream().filter(each -> only.isEmpty() || List.of(only.split(";")).contains(each.name())).toList();
            RedisCommands<String, String> server = client.connect().sync();
            double ratio = new Bench(server, seconds, WORKERS).compare(libraries, rounds);
            new Bench(server, seconds, 1).compare(libraries, rounds);
            for (Library each : all) {
                each.end().close();
            }
            System.out.printf("%n%s to %s: %.2f%n", Libraries.OURS, Libraries.FAIR, ratio);
            isEnough = ratio >= LEAST_RATIO || !given.contains("--check");
        }
        System.exit(isEnough ? 0 : 1);
    }

    private static String option(List<String> given, String name, String otherwise) {
        int at = given.indexOf(name);
        return at < 0 ? otherwise : given.get(at + 1);
    }

    private double compare(List<Library> libraries, int rounds) throws Exception {
        List<List<Figure>> figures = new ArrayList<>();
        libraries.forEach(each -> figures.add(new ArrayList<>()));
        for (int round = -1; round < rounds; round++) {
            for (int turn = 0; turn < libraries.size(); turn++) {
                // Each is the first in its turn.
                int at = Math.floorMod(turn + round, libraries.size());
                Figure figure = measure(libraries.get(at));
                if (round >= 0) {
                    figures.get(at).add(figure);
                }
            }
        }
        System.out.printf("%n%d workers, medians of %d rounds of %s s%n%n", workers, rounds, seconds);
        System.out.printf("| | grants per second | longest wait | CPU per grant | commands per grant |%n|---|---:|---:|---:|---:|%n");
        threads.shutdown();
        double ours = Double.NaN;
        double fair = Double.NaN;
        for (int at = 0; at < libraries.size(); at++) {
            String name = libraries.get(at).name();
            List<Figure> mine = figures.get(at);
            double grants = median(mine, Figure::grants);
            ours = name.equals(Libraries.OURS) ? grants : ours;
            fair = name.equals(Libraries.FAIR) ? grants : fair;
            System.out.printf(
                    "| %s | %,.0f | %,.1f ms | %,.0f µs | %.1f |%n",
                    name, grants, median(mine, Figure::longest), median(mine, Figure::cpu), median(mine, Figure::commands));
        }
        return ours / fair;
    }

    private Figure measure(Library library) throws Exception {
        String name = "bench:" + library.name().replace(' ', '-');
        server.del(name, COUNTER);
        // Connections are opened, and scripts loaded, before.
        each(() -> library.turn().take(name, () -> {}));
        AtomicLong grants = new AtomicLong();
        AtomicLong longest = new AtomicLong();
        long begun = System.nanoTime();
        long used = MACHINE.getProcessCpuTime();
        long ran = commands();
        each(() -> {
            while (System.nanoTime() - begun < seconds * 1e9) {
                long asked = System.nanoTime();
                library.turn().take(name, () -> {
                    longest.accumulateAndGet(System.nanoTime() - asked, Math::max);
                    server.incr(COUNTER);
                    grants.incrementAndGet();
                });
            }
        });
        double count = grants.get();
        double took = (System.nanoTime() - begun) / 1e9;
        double cpu = MACHINE.getProcessCpuTime() - used;
        // Without the one of the work.
        double commands = (commands() - ran) / count - 1;
        if (Long.parseLong(server.get(COUNTER)) != grants.get()) {
            throw new IllegalStateException(library.name() + ": grants and the counter differ");
        }
        return new Figure(count / took, longest.get() / 1e6, cpu / count / 1e3, commands);
    }

    private interface Work {
        void run() throws Exception;
    }

    private void each(Work work) throws Exception {
        List<Future<?>> all = new ArrayList<>();
        for (int worker = 0; worker < workers; worker++) {
            all.add(threads.submit(() -> {
                work.run();
                return null;
            }));
        }
        for (Future<?> each : all) {
            each.get();
        }
    }

    /** How many the server has run: also those of scripts. */
    private long commands() {
        String text = server.info("stats");
        String rest = text.substring(text.indexOf("total_commands_processed:") + 25);
        return Long.parseLong(rest.substring(0, rest.indexOf('\r')));
    }

    private static double median(List<Figure> all, ToDoubleFunction<Figure> part) {
        double[] values = all.stream().mapToDouble(part).sorted().toArray();
        return values.length == 0 ? Double.NaN : values[values.length / 2];
    }
}
