import io.lettuce.core.pubsub.*;
import java.util.*;
import java.util.concurrent.*;

class LettuceTickets extends LettuceLocks {
    static final long TICKET = 3000; // how long a place is kept, and a grant until it is claimed
    final String channel = "grants:" + UUID.randomUUID();
    final Map<String, Semaphore> turns = new ConcurrentHashMap<>(); // by owner, what wakes up whoever waits
    final StatefulRedisPubSubConnection<String, String> ear = client.connectPubSub(uri);
    volatile String[] announced = {"NOTIFY", channel};
    volatile long often = TICKET / 3;

    LettuceTickets() {
        ear.addListener(new RedisPubSubAdapter<>() {
            @Override public void message(String channel, String told) {
                Semaphore turn = turns.get(told.split(" ", 4)[2]); // fence, length, owner, key
                if (turn != null) turn.release();
            }
        });
        ear.async().subscribe(channel);
    }

    /** In the server's queue, on the connection that all share. */
    @Override void await(long end, String... request) throws Exception {
        String key = request[1], owner = request[2];
        Semaphore turn = new Semaphore(0);
        turns.put(owner, turn);
        try {
            for (boolean isTurn = false; !isTurn;) {
                long left = end - now();
                if (left <= 0) {
                    send("LOCK.RELEASE", key, owner);
                    return;
                }
                List<String> asks = new ArrayList<>(List.of(request));
                asks.addAll(List.of("TICKET", "" + TICKET));
                asks.addAll(List.of(announced));
                isTurn = send(asks.toArray(String[]::new)) != null
                    || turn.tryAcquire(Math.min(often, left), TimeUnit.MILLISECONDS);
            }
        } catch (ExecutionException error) {
            if (!error.getMessage().contains("ERR NOTIFY is not possible")) throw error;
            announced = new String[0];
            often = 100;
        } finally {
            turns.remove(owner);
        }
    }
}
