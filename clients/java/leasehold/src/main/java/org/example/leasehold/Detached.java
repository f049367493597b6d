package org.example.leasehold;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/**
 * A lock that was left held, for somebody else to go on with. As text, {@code leasehold:<lock>:<owner>:<fence>}, it goes into
 * the payload of a job: each byte that is not a letter, a digit or one of {@code -._~} is {@code %} and two hexadecimal digits,
 * and several locks are separated by commas. The locks have their whole names on the server, with the prefix.
 */
public final class Detached {
    private static final Pattern TEXT = Pattern.compile("leasehold:([^:]*):([^:]+):(\\d{1,16})");
    private static final Pattern ESCAPED = Pattern.compile("([A-Za-z0-9\\-._~]|%[0-9a-fA-F]{2})*");

    final List<byte[]> keys;
    final byte[] owner;
    private final long fence;

    Detached(List<byte[]> keys, byte[] owner, long fence) {
        this.keys = keys;
        this.owner = owner;
        this.fence = fence;
    }

    /**
     * Reads the text of a lock that was left held, written by a program of any language.
     *
     * @param text the text
     * @return the lock
     */
    public static Detached parse(String text) {
        Matcher parts = TEXT.matcher(text);
        if (!parts.matches()) {
            throw wrong();
        }
        List<byte[]> keys = new ArrayList<>();
        for (String key : parts.group(1).split(",", -1)) {
            keys.add(unescaped(key));
        }
        return new Detached(keys, unescaped(parts.group(2)), Long.parseLong(parts.group(3)));
    }

    private static IllegalArgumentException wrong() {
        return new IllegalArgumentException("detached must be leasehold:<lock>:<owner>:<fence>");
    }

    private static byte[] unescaped(String word) {
        if (!ESCAPED.matcher(word).matches()) {
            throw wrong();
        }
        StringBuilder out = new StringBuilder();
        for (int at = 0; at < word.length(); at++) {
            boolean isEscape = word.charAt(at) == '%';
            out.append(isEscape ? (char) Integer.parseInt(word.substring(at + 1, at + 3), 16) : word.charAt(at));
            at += isEscape ? 2 : 0;
        }
        return out.toString().getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String escaped(byte[] word) {
        StringBuilder out = new StringBuilder();
        for (char each : Script.text(word).toCharArray()) {
            boolean isPlain = each < 128 && (Character.isLetterOrDigit(each) || "-._~".indexOf(each) >= 0);
            out.append(isPlain ? String.valueOf(each) : String.format("%%%02X", (int) each));
        }
        return out.toString();
    }

    /**
     * Returns the fence of the grant.
     *
     * @return the fence
     */
    public long fence() {
        return fence;
    }

    /** Returns the text that {@link #parse} reads. */
    @Override
    public String toString() {
        return "leasehold:" + String.join(",", keys.stream().map(Detached::escaped).toList()) + ":" + escaped(owner) + ":" + fence;
    }

    @Override
    public boolean equals(@Nullable Object other) {
        return other instanceof Detached && toString().equals(other.toString());
    }

    @Override
    public int hashCode() {
        return toString().hashCode();
    }
}
