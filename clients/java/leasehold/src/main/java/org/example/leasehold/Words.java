package org.example.leasehold;

import io.lettuce.core.codec.ByteArrayCodec;
import io.lettuce.core.output.CommandOutput;
import io.lettuce.core.protocol.AsyncCommand;
import io.lettuce.core.protocol.Command;
import io.lettuce.core.protocol.CommandArgs;
import io.lettuce.core.protocol.ProtocolKeyword;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A command as Lettuce sends it. */
record Words(Name name, List<byte[]> rest) {
    enum Name implements ProtocolKeyword {
        ACQUIRE("LOCK.ACQUIRE"),
        EXTEND("LOCK.EXTEND"),
        RELEASE("LOCK.RELEASE"),
        EVAL("EVAL"),
        EVALSHA("EVALSHA");

        private final String text;
        private final byte[] bytes;

        Name(String text) {
            this.text = text;
            this.bytes = text.getBytes(StandardCharsets.US_ASCII);
        }

        @Override
        public byte[] getBytes() {
            return bytes;
        }

        @Override
        public String toString() {
            return text;
        }
    }

    AsyncCommand<byte[], byte[], Object> command() {
        CommandArgs<byte[], byte[]> args = new CommandArgs<>(ByteArrayCodec.INSTANCE);
        for (byte[] each : rest) {
            args.add(each);
        }
        return new AsyncCommand<>(new Command<>(name, new Reply(), args));
    }

    /** A number, bytes, or nil: there is no other reply to what is asked. */
    private static final class Reply extends CommandOutput<byte[], byte[], Object> {
        private Reply() {
            super(ByteArrayCodec.INSTANCE, null);
        }

        @Override
        public void set(long number) {
            output = number;
        }

        @Override
        public void set(@Nullable ByteBuffer bytes) {
            output = bytes == null ? null : codec.decodeValue(bytes);
        }
    }
}
