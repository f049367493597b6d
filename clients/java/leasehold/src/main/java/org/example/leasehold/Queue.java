package org.example.leasehold;

import io.lettuce.core.RedisChannelHandler;
import io.lettuce.core.RedisConnectionStateListener;
import io.lettuce.core.pubsub.RedisPubSubAdapter;
import io.lettuce.core.pubsub.RedisPubSubListener;
import io.lettuce.core.pubsub.StatefulRedisPubSubConnection;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * The places that this client has in the queues of a server, and the subscription by which it is told of grants. All is done in
 * turn.
 *
 * <pre>
 * connection                  ACQUIRE … TICKET                ACQUIRE … TICKET
 *                             nil                             nil: a slice later     message: granted
 * the lease, for certain                                      ├───────────── min(ttl, kept) ─────────────┤
 * </pre>
 *
 * The message is the grant. The server made it after it had answered the last request with nil, so the lease is counted from
 * before that: it ends before the server's, however late the message is. That holds unless an earlier grant of this owner may
 * have run out unheard, whose message may still be on its way: then it is a reason to ask, as anything else is.
 */
final class Queue {
    /** How many times a place is kept for as long as nobody asks for it. */
    static final int KEPT_TIMES = 3;

    private static final long MILLI = 1_000_000;
    private static final long KEPT_LEAST = 1000 * MILLI;
    /** After how long tickets that were refused are asked for again. */
    private static final long REFUSED_FOR = 60_000 * MILLI;
    /** How often a place is asked for while nobody tells of grants, unless there are many. */
    private static final long UNHEARD = 250 * MILLI;

    private static final Pattern TOO_LONG = Pattern.compile("^ERR TICKET must be an integer from 1 to (\\d{1,15})\\b");

    private final Core core;
    /** Nobody else knows it. */
    private final byte[] channel =
            ("leasehold:" + UUID.randomUUID().toString().replace("-", "")).getBytes(StandardCharsets.US_ASCII);

    private final Map<String, Place> places = new HashMap<>();
    private @Nullable Ear ear;
    private boolean isOpening;
    /** This user is told of no grants, as far as is known. */
    private long muteUntil;
    /** The module is older than tickets. */
    private boolean noTickets;

    private long longest = Clock.NEVER;
    private boolean isClosed;

    Queue(Core core) {
        this.core = core;
    }

    long kept() {
        return Math.min(longest, Math.max(KEPT_LEAST, KEPT_TIMES * Math.max(core.settings.slice, places.size() * MILLI)));
    }

    long restUnheard() {
        return Math.min(core.settings.slice, Math.max(UNHEARD, places.size() * MILLI));
    }

    /** So long that not all ask at once. */
    long spread() {
        return (places.size() + 1) * MILLI;
    }

    private boolean isMute() {
        return muteUntil != 0 && Clock.now() < muteUntil;
    }

    Claim.Question question(long ttl, long kept) {
        return isMute() && noTickets ? Claim.Question.acquire(ttl) : Claim.Question.ticket(ttl, kept, !isMute(), channel);
    }

    /** What tells of the grants that are asked for now; null: there is no such thing at the moment. */
    @Nullable Ear ear() {
        return isMute() ? null : ear;
    }

    void enter(String owner, Place place) {
        places.put(owner, place);
    }

    void leave(String owner, Place place) {
        places.remove(owner, place);
    }

    /** Whether it is to be asked for in another way. */
    boolean learns(Throwable error) {
        String code = Verdict.code(error);
        if (code == null) {
            return false;
        }
        String text = String.valueOf(error.getMessage());
        Matcher tooLong = TOO_LONG.matcher(text);
        if (tooLong.find()) {
            long most = Long.parseLong(tooLong.group(1)) * MILLI;
            boolean isNews = most < longest;
            longest = Math.min(longest, most);
            return isNews;
        }
        if (text.startsWith("ERR unknown option")) {
            mute(true);
        } else if (code.equals("NOPERM") && text.contains("channel") || text.startsWith("ERR NOTIFY is not possible")) {
            mute(false);
        } else {
            return false;
        }
        return true;
    }

    private void mute(boolean noTickets) {
        this.noTickets = noTickets;
        muteUntil = Clock.now() + REFUSED_FOR;
    }

    /** Sees to it that grants are told of. Whoever waits is told when they are. */
    void listen() {
        if (ear != null || isOpening || isMute() || isClosed) {
            return;
        }
        isOpening = true;
        core.link.listen(
                connection -> {
                    Ear opened = new Ear(connection);
                    connection.addListener((RedisConnectionStateListener) opened);
                    connection.addListener((RedisPubSubListener<byte[], byte[]>) opened);
                    connection.async().subscribe(channel).whenComplete((done, error) -> core.turn.take(() -> subscribed(opened, error)));
                },
                error -> core.turn.take(() -> unsubscribed(error)));
    }

    private void subscribed(Ear opened, @Nullable Throwable error) {
        if (error != null) {
            opened.end();
            unsubscribed(error);
        } else if (isClosed || opened.isCut) {
            opened.end();
            isOpening = false;
        } else {
            isOpening = false;
            ear = opened;
            List.copyOf(places.values()).forEach(Place::isTold);
        }
    }

    private void unsubscribed(Throwable error) {
        if (Verdict.of(error) == Verdict.REFUSED) {
            mute(false);
        }
        // While the server is down this fails each time: not as fast as it is asked for.
        core.turn.at(Clock.now() + Clock.Rest.RETRY.after(0), () -> isOpening = false);
    }

    /** The server does not grant locks any more. */
    void moved() {
        if (ear != null) {
            ear.end();
        }
    }

    void close() {
        isClosed = true;
        moved();
    }

    /** A subscription to the grants, until it is cut. */
    final class Ear extends RedisPubSubAdapter<byte[], byte[]> implements RedisConnectionStateListener {
        private final StatefulRedisPubSubConnection<byte[], byte[]> connection;
        private boolean isCut;

        private Ear(StatefulRedisPubSubConnection<byte[], byte[]> connection) {
            this.connection = connection;
        }

        @Override
        public void message(byte[] on, byte[] message) {
            core.turn.take(() -> hear(new String(message, StandardCharsets.ISO_8859_1)));
        }

        /** A message consists of the fence, the length of the owner, the owner and the key. */
        private void hear(String message) {
            int first = message.indexOf(' ');
            int second = message.indexOf(' ', first + 1);
            try {
                long fence = Long.parseLong(message.substring(0, first));
                int size = Integer.parseInt(message.substring(first + 1, second));
                Place place = places.get(message.substring(second + 1, second + 1 + size));
                if (place != null && fence > 0) {
                    place.hear(fence, this);
                }
            } catch (IndexOutOfBoundsException | NumberFormatException e) {
                // It is not one of the server's. Asking again is the truth.
            }
        }

        @Override
        public void onRedisDisconnected(RedisChannelHandler<?, ?> handler) {
            core.turn.take(this::end);
        }

        /** It may be dead without having said so. */
        void end() {
            if (isCut) {
                return;
            }
            isCut = true;
            core.turn.after(connection::closeAsync);
            if (ear == this) {
                ear = null;
                List.copyOf(places.values()).forEach(place -> place.cut(this));
            }
        }
    }
}
