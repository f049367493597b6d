package org.example.leasehold;

import java.util.List;
import java.util.function.BiConsumer;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * Where the servers are, and how to connect to them. Lettuce is behind this unless another library is. A place is a server as
 * the library names it; one whose locks are all at one place needs no name for it.
 */
public interface Connector {
    /**
     * Connects to a server. Blocks.
     *
     * @param place where
     * @return the connection
     */
    Wire connect(String place);

    /**
     * Subscribes to a channel of a server, on a connection of its own. Blocks until that is done.
     *
     * @param place where
     * @param channel the channel
     * @param heard is given each message
     * @return the connection
     */
    Wire listen(String place, byte[] channel, Consumer<byte[]> heard);

    /**
     * Returns whether all keys are at one place, which is always the same.
     *
     * @return true unless this finds out where keys are
     */
    default boolean isSingle() {
        return true;
    }

    /**
     * Returns whether this is to look each second, for nobody else says that a server grants no locks any more.
     *
     * @return true for a primary that others name
     */
    default boolean isWatched() {
        return false;
    }

    /**
     * Returns the slot of a key.
     *
     * @param key the key
     * @return 0 where there are no slots
     */
    default int slotOf(byte[] key) {
        return 0;
    }

    /**
     * Returns where a slot is, as far as is known.
     *
     * @param slot the slot
     * @return null if that is not known
     */
    default @Nullable String placeOf(int slot) {
        return "";
    }

    /**
     * Finds out where slots are. Blocks.
     *
     * @param keys whose slots are wanted at least
     */
    default void look(List<byte[]> keys) {}

    /** Closes what this has opened by itself. */
    default void close() {}

    /** A connection to a server, until it is cut: it does not connect again. */
    interface Wire {
        /**
         * Sends a command, behind those that were sent before. Does not block.
         *
         * @param words the command
         * @param isAsking whether {@code ASKING} is to come right before it
         * @param answer is given the reply: a number, bytes, null, or a list of these, in which a map is its names and values in
         *     turn; or else a {@link ServerException} if the server has answered, and any other error if not
         */
        void send(List<byte[]> words, boolean isAsking, BiConsumer<@Nullable Object, @Nullable Throwable> answer);

        /**
         * Tells when the connection is cut, or at once if it is.
         *
         * @param cut is run once
         */
        void whenCut(Runnable cut);

        /** Cuts the connection. Does not block. What was sent before goes out. */
        void close();
    }
}
