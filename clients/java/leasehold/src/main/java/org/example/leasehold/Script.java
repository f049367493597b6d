package org.example.leasehold;

import static java.nio.charset.StandardCharsets.ISO_8859_1;
import static java.nio.charset.StandardCharsets.US_ASCII;

import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Locale;

/**
 * A server without the module: scripts do what the module does, on the same keys with the same values.
 *
 * <p>A fence is the larger of the server's clock in microseconds plus a margin and the last fence of this lock plus one. The
 * last one is kept in a key beside the lock for a day: after that the clock is far ahead of it. The margin is that of the
 * module, whose fences are ahead of the clock by as much after it has started: so fences grow when a server without the module
 * takes over from one that has it, and when it is the other way round.
 *
 * <p>A server may be given the module while it runs. From then on a lock that a script granted would pass by the queue. So the
 * script looks first: by Redis 7 and Valkey it can ask whether this user may run a command, which fails for one that there is
 * not.
 */
enum Script {
    /** KEYS: the locks, their last fences. ARGV: owner, ttl, how long to remember the fence, margin. */
    ACQUIRE(
            """
            if redis.acl_check_cmd then
              local is_known, may = pcall(redis.acl_check_cmd, 'LOCK.ACQUIRE', KEYS[1], ARGV[1], ARGV[2])
              if is_known and may then return redis.error_reply('LEASEHOLD the module has been loaded') end
            end
            local count = #KEYS / 2
            local same
            for i = 1, count do
              local held = redis.call('GET', KEYS[i])
              local fence = held and string.match(held, '^(%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d):') or false
              if held and not (fence and string.sub(held, 18) == ARGV[1]) then
                if held ~= ARGV[1] or count > 1 then return false end
                fence = '0'
              end
              if i == 1 then same = fence elseif same ~= fence then same = false end
            end
            if same then
              for i = 1, count do
                local left = redis.call('PTTL', KEYS[i])
                if left >= 0 and left < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[i], ARGV[2]) end
              end
              return same
            end
            local now = redis.call('TIME')
            local fence = now[1] * 1000000 + now[2] + ARGV[4]
            for i = count + 1, 2 * count do
              local last = tonumber(redis.call('GET', KEYS[i]) or '0')
              if last and last >= fence then fence = last + 1 end
            end
            fence = string.format('%016.0f', fence)
            for i = 1, count do
              redis.call('SET', KEYS[i], fence .. ':' .. ARGV[1], 'PX', ARGV[2])
              redis.call('SET', KEYS[count + i], fence, 'PX', ARGV[3])
            end
            return fence
            """),

    /** ARGV: the value, ttl. All or none. */
    EXTEND(
            """
            for _, key in ipairs(KEYS) do if redis.call('GET', key) ~= ARGV[1] then return 0 end end
            for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[2]) end
            return 1
            """),

    /** KEYS: the lock, its last fence. ARGV: owner, fence, how long to remember it. */
    RAISE(
            """
            local held = redis.call('GET', KEYS[1])
            if not held or string.sub(held, 17) ~= ':' .. ARGV[1] then return false end
            local fence = string.sub(held, 1, 16)
            if fence >= ARGV[2] then return fence end
            local now = redis.call('TIME')
            if tonumber(ARGV[2]) > (now[1] + 86400) * 1000000 + now[2] then
              return redis.error_reply('ERR fence must be at most a day ahead of the clock of this server')
            end
            redis.call('SET', KEYS[1], ARGV[2] .. ':' .. ARGV[1], 'KEEPTTL')
            redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
            return ARGV[2]
            """),

    /** ARGV: the value, and how it may end instead. How many were released. */
    RELEASE(
            """
            local count = 0
            for _, key in ipairs(KEYS) do
              local held = redis.call('GET', key)
              if held and (held == ARGV[1] or string.sub(held, 17) == ARGV[2]) then count = count + redis.call('DEL', key) end
            end
            return count
            """);

    static final byte[] DAY = Claim.ascii(86_400_000);
    /** What the module is set to unless somebody changed it: leasehold.fence-margin. */
    static final long MARGIN = 15_000_000;

    private static final byte[] MARGIN_MICROS = Claim.ascii(MARGIN);

    private final byte[] text;
    private final byte[] digest;

    Script(String text) {
        this.text = text.getBytes(US_ASCII);
        try {
            digest = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(this.text)).getBytes(US_ASCII);
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }

    static Script of(Claim.Question question) {
        return switch (question.asks()) {
            // Nobody waits here. Whoever asks for a place is told of the present.
            case ACQUIRE, TICKET, WAIT -> ACQUIRE;
            case EXTEND -> EXTEND;
            case RAISE -> RAISE;
            case RELEASE -> RELEASE;
        };
    }

    /** Asks by the digest only once the server has run it: a digest that it does not know is an error, which it counts. */
    List<byte[]> words(Claim claim, Claim.Question question, boolean isKnown) {
        String feature = claim.needsModule();
        if (feature != null) {
            throw LeaseholdException.Refused.needsModule(feature);
        }
        List<byte[]> keys = new ArrayList<>(claim.keys());
        if (this == ACQUIRE || this == RAISE) {
            claim.keys().forEach(key -> keys.add(beside(key)));
        }
        List<byte[]> words = new ArrayList<>(keys.size() + 7);
        words.add(bytes(isKnown ? "EVALSHA" : "EVAL"));
        words.add(isKnown ? digest : text);
        words.add(Claim.ascii(keys.size()));
        words.addAll(keys);
        String owner = text(claim.owner());
        switch (this) {
            case ACQUIRE -> words.addAll(List.of(claim.owner(), Claim.millis(question.ttl()), DAY, MARGIN_MICROS));
            case EXTEND -> words.addAll(List.of(bytes(value(question.fence(), owner)), Claim.millis(question.ttl())));
            case RAISE -> words.addAll(List.of(claim.owner(), bytes(String.format(Locale.ROOT, "%016d", question.fence())), DAY));
            case RELEASE -> {
                words.add(bytes(value(question.fence(), owner)));
                if (question.fence() == 0) {
                    words.add(bytes(":" + owner));
                }
            }
        }
        return words;
    }

    /** What the key holds. A fence of 0 is that of a lock that another kind of client wrote. */
    static String value(long fence, String owner) {
        return fence == 0 ? owner : String.format(Locale.ROOT, "%016d:", fence) + owner;
    }

    /**
     * The key of the last fence, in the slot of the lock. A name with a closing brace that closes nothing has none there: a
     * cluster refuses it.
     */
    static byte[] beside(byte[] key) {
        String name = text(key);
        int open = name.indexOf('{');
        boolean hasTag = open >= 0 && name.indexOf('}', open + 1) > open + 1;
        return bytes(hasTag || name.contains("}") ? name + ":fence" : "{" + name + "}:fence");
    }

    static String text(byte[] bytes) {
        return new String(bytes, ISO_8859_1);
    }

    private static byte[] bytes(String text) {
        return text.getBytes(ISO_8859_1);
    }
}
