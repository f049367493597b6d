package org.example.leasehold;

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

    /** After how long a subscription that nobody has answered is tried again. */
    private static final long OPENS_WITHIN = 5000 * MILLI;

    private static final Pattern TOO_LONG = Pattern.compile("^ERR TICKET must be an integer from 1 to (\\d{1,15})\\b");

    private final Core core;
    private final Link link;
    /** Nobody else knows it. */
    private final byte[] channel =
            ("leasehold:" + UUID.randomUUID().toString().replace("-", "")).getBytes(StandardCharsets.US_ASCII);

    /** By what a message says after the fence. */
    private final Map<String, Place> places = new HashMap<>();
    /** By their places. */
    private final Map<String, Ear> ears = new HashMap<>();

    /** Those that are to be opened. */
    private final Map<String, Ear> opening = new HashMap<>();
    /** How many wait on connections of their own. */
    private int blocked;
    /** This user is told of no grants, as far as is known. */
    private long muteUntil;
    /** The module is older than tickets. */
    private boolean noTickets;

    private long longest = Clock.NEVER;
    private boolean isClosed;

    Queue(Core core, Link link) {
        this.core = core;
        this.link = link;
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

    boolean isMute() {
        return muteUntil != 0 && Clock.now() < muteUntil;
    }

    Claim.Question question(long ttl, long kept) {
        return isMute() && noTickets ? Claim.Question.acquire(ttl) : Claim.Question.ticket(ttl, kept, !isMute(), channel);
    }

    /** What tells of the grants that are asked for at a node now; null: there is no such thing at the moment. */
    @Nullable Ear ear(@Nullable String place) {
        return isMute() ? null : ears.get(place);
    }

    void enter(Place place) {
        places.put(place.name, place);
    }

    void leave(Place place) {
        places.remove(place.name, place);
    }

    /** Whether one more may wait on a connection of its own. */
    boolean makesRoom() {
        if (blocked == core.settings.waitConnections) {
            return false;
        }
        blocked++;
        return true;
    }

    void leaveRoom() {
        blocked--;
    }

    /** Whether it may be to be asked for in another way. */
    boolean learns(Throwable error) {
        String code = Verdict.code(error);
        if (code == null) {
            return false;
        }
        String text = Verdict.said(error);
        Matcher tooLong = TOO_LONG.matcher(text);
        if (tooLong.find()) {
            long most = Long.parseLong(tooLong.group(1)) * MILLI;
            longest = Math.min(longest, most);
            return true;
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

    /** Sees to it that the grants of a node are told of. Whoever waits is told when they are. */
    void listen(String place) {
        Ear mine = new Ear(place);
        if (ears.containsKey(place) || isMute() || isClosed || opening.putIfAbsent(place, mine) != null) {
            return;
        }
        // A server that is not heard of is asked anew.
        core.turn.at(Clock.now() + OPENS_WITHIN, () -> opening.remove(place, mine));
        link.listen(
                place,
                channel,
                message -> core.turn.take(() -> mine.hear(new String(message, StandardCharsets.ISO_8859_1))),
                wire -> core.turn.take(() -> subscribed(mine, wire)),
                error -> core.turn.take(() -> unsubscribed(mine, error)));
    }

    private void subscribed(Ear mine, Connector.Wire wire) {
        mine.wire = wire;
        wire.whenCut(() -> core.turn.take(mine::end));
        if (!opening.remove(mine.place, mine) || isClosed || mine.isCut) {
            mine.end();
        } else {
            ears.put(mine.place, mine);
            List.copyOf(places.values()).forEach(Place::isTold);
        }
    }

    private void unsubscribed(Ear mine, Throwable error) {
        if (Verdict.of(error) == Verdict.REFUSED) {
            mute(false);
        }
        // While the server is down this fails each time: not as fast as it is asked for.
        core.turn.at(Clock.now() + Clock.Rest.RETRY.after(0), () -> opening.remove(mine.place, mine));
    }

    /** What subscribed there may have been another server. */
    void forget(String place) {
        opening.remove(place);
        Ear ear = ears.get(place);
        if (ear != null) {
            ear.end();
        }
    }

    void close() {
        isClosed = true;
        opening.clear();
        List.copyOf(ears.values()).forEach(Ear::end);
    }

    /** A subscription to the grants that a server makes, until it is cut. */
    final class Ear {
        private final String place;
        private Connector.@Nullable Wire wire;
        private boolean isCut;

        private Ear(String place) {
            this.place = place;
        }

        /** A message consists of the fence, the length of the owner, the owner and the key. */
        private void hear(String message) {
            int first = message.indexOf(' ');
            Place place = places.get(message.substring(first + 1));
            try {
                long fence = Long.parseLong(message.substring(0, Math.max(0, first)));
                if (place != null && fence > 0 && !isCut) {
                    place.hear(fence, this);
                }
            } catch (NumberFormatException e) {
                // It is not one of the server's. Asking again is the truth.
            }
        }

        /** It may be dead without having said so. */
        void end() {
            if (isCut) {
                return;
            }
            isCut = true;
            if (wire != null) {
                core.turn.after(wire::close);
            }
            if (ears.remove(place, this)) {
                List.copyOf(places.values()).forEach(each -> each.cut(this));
            }
        }
    }
}
