package org.example.leasehold;

import java.util.ArrayList;
import java.util.List;

/** Spells commands: their names and arguments as bytes. */
final class Words {
    private Words() {}

    /** Words are bytes, strings or numbers. */
    static List<byte[]> of(Object... words) {
        List<byte[]> bytes = new ArrayList<>(words.length);
        for (Object each : words) {
            bytes.add(word(each));
        }
        return bytes;
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
}
