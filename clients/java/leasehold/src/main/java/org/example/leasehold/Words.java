package org.example.leasehold;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A command as Lettuce sends it. */
record Words(String name, List<byte[]> rest) {
    private record Name(String text, byte[] bytes) implements ProtocolKeyword {
        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    /** Words are bytes, strings or numbers. */
    static Words of(String name, Object... rest) {
        List<byte[]> words = new ArrayList<>(rest.length);
        for (Object each : rest) {
            words.add(word(each));
        }
        return new Words(name, words);
    }

    static byte[] word(Object word) {
        if (word instanceof byte[] bytes) {
            // It may be sent later, or again.
            return bytes.clone();
        }
        if (word instanceof CharSequence || word instanceof Number) {
            return Claim.bytes(word.toString());
        }
        throw new IllegalArgumentException("the words of a command must be strings, bytes or numbers");
    }

    AsyncCommand<byte[], byte[], Object> command() {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (byte[] each : rest) {
            args.add(each);
        }
        Name keyword = new Name(name, name.getBytes(StandardCharsets.US_ASCII));
        return new AsyncCommand<>(new Command<>(keyword, new Reply(), args));
    }

    /** Numbers, bytes, nil, and lists of these; a map is a list of its names and values in turn. */
    private static final class Reply extends CommandOutput<byte[], byte[], Object> {
        private final Deque<List<@Nullable Object>> open = new ArrayDeque<>(2);

        private Reply() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        private void put(@Nullable Object value) {
            if (open.isEmpty()) {
                output = value;
            } else {
                open.peek().add(value);
            }
        }

        @Override
        public void set(long number) {
            put(number);
        }

        @Override
        public void set(double number) {
            put(number);
        }

        @Override
        public void set(boolean is) {
            put(is);
        }

        @Override
        public void set(@Nullable ByteBuffer bytes) {
            put(bytes == null ? null : codec.decodeValue(bytes));
        }

        @Override
        public void setBigNumber(@Nullable ByteBuffer bytes) {
            set(bytes);
        }

        @Override
        public void multi(int count) {
            if (count < 0) {
                put(null);
                return;
            }
            List<@Nullable Object> list = new ArrayList<>();
            put(list);
            open.push(list);
        }

        @Override
        public void complete(int depth) {
            while (open.size() > depth) {
                open.pop();
            }
        }
    }
}
