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
}
