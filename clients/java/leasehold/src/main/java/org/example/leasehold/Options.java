package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/** What one request wants otherwise than the {@link Settings} say. Each method returns a copy that differs in one thing. */
public final class Options implements Cloneable {
    private static final Options NONE = new Options();
    private static final int LONGEST_OWNER = 255;

    /** -1: as the settings say. */
    long ttl = -1;

    long patience = -1;
    /** -1: until it is released. */
    long renewFor = -1;

    long holdAtLeast;
    @Nullable Boolean confirm;
    byte @Nullable [] owner;
    /** -1: it is not bound to a connection. */
    long grace = -1;

    Acknowledged.@Nullable Replicas replicas;

    private Options() {}

    /**
     * Returns what the settings say.
     *
     * @return options that change nothing
     */
    public static Options none() {
        return NONE;
    }

    private Options with(Consumer<Options> change) {
        try {
            Options copy = (Options) clone();
            change.accept(copy);
            return copy;
        } catch (CloneNotSupportedException e) {
            throw new AssertionError(e);
        }
    }

    /**
     * Sets how long the lease lasts unless it is renewed.
     *
     * @param ttl at least 3 ms
     * @return the options with it
     */
    public Options ttl(Duration ttl) {
        return with(copy -> copy.ttl = Settings.checkedTtl(ttl));
    }

    /**
     * Sets how long to wait: a hard limit. {@code tryAcquire} does not wait, and refuses it.
     *
     * @param patience the limit
     * @return the options with it
     */
    public Options patience(Duration patience) {
        return with(copy -> copy.patience = Settings.checked("patience", patience, Duration.ZERO));
    }

    /**
     * Has the lease renewed for so long at the most, and not until it is released.
     *
     * @param limit zero: it is not renewed
     * @return the options with it
     */
    public Options renewFor(Duration limit) {
        return with(copy -> copy.renewFor = Settings.checked("renewFor", limit, Duration.ZERO));
    }

    /**
     * Has a release that comes earlier leave the lock held until then.
     *
     * @param least how long to hold the lock
     * @return the options with it
     */
    public Options holdAtLeast(Duration least) {
        return with(copy -> copy.holdAtLeast = Settings.checked("holdAtLeast", least, Duration.ZERO));
    }

    /**
     * Has the server confirm the grant before the work begins, or not: see {@link Settings#confirm}.
     *
     * @param confirm whether to confirm
     * @return the options with it
     */
    public Options confirm(boolean confirm) {
        return with(copy -> copy.confirm = confirm);
    }

    /**
     * Sets as whom the lock is held. Each lease has an owner of its own unless this is set. Whoever asks with the owner that
     * holds the lock has it, too, so no two requests may have the same owner at a time.
     *
     * @param owner 1 to 255 bytes of UTF-8
     * @return the options with it
     */
    public Options owner(String owner) {
        byte[] bytes = owner.getBytes(StandardCharsets.UTF_8);
        if (bytes.length == 0 || bytes.length > LONGEST_OWNER) {
            throw new IllegalArgumentException("owner must have 1 to " + LONGEST_OWNER + " bytes");
        }
        return with(copy -> copy.owner = bytes);
    }

    /**
     * Has the lock end with the connection of this program: it is free so long after that is closed, as when the program dies.
     * If the connection alone is lost, and the program comes back within that time, it goes on. It needs the module.
     *
     * @param grace how long the lock outlives the connection; zero: it is free at once
     * @return the options with it
     */
    public Options ephemeral(Duration grace) {
        return with(copy -> copy.grace = Settings.checked("ephemeral", grace, Duration.ZERO));
    }

    /**
     * Has replicas acknowledge the grant before it is returned, by {@code WAIT}: or else {@link LeaseholdException.TooFewReplicas}.
     *
     * @param count of how many
     * @param within how long they are waited for
     * @return the options with it
     */
    public Options replicas(int count, Duration within) {
        return acknowledged(count, within, false);
    }

    /**
     * Has the server and replicas have the grant on disk before it is returned, by {@code WAITAOF} of Redis 7.2 and Valkey: or
     * else {@link LeaseholdException.TooFewReplicas}.
     *
     * @param count how many replicas; 0: the server alone
     * @param within how long they are waited for
     * @return the options with it
     */
    public Options durable(int count, Duration within) {
        return acknowledged(count, within, true);
    }

    private Options acknowledged(int count, Duration within, boolean isDurable) {
        if (count != 0 || !isDurable) {
            Settings.checked("replicas", count);
        }
        long nanos = Settings.checked("within", within, Duration.ofMillis(1));
        return with(copy -> copy.replicas = new Acknowledged.Replicas(count, nanos, isDurable));
    }
}
