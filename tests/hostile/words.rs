//! What somebody might send: words, whole commands of ours with any of them, and what others may do to the same keys.

use testkit::Seed;

const COMMANDS: &str = "LOCK.ACQUIRE LOCK.RELEASE LOCK.EXTEND LOCK.RAISE LOCK.CHECK LOCK.GUARD \
    LOCK.INFO lock.waiters LOCK.TOP LOCK.LOG LOCK.DROP LOCK.HELP";

/// The last one is empty.
const KEYS: &str = "a b c d list ";

/// One of them is empty.
const WORDS: &str = "alice bob * 0 1 2 30 -1 +1 01 1e3 60000 86400000 86400001 9007199254740991 \
    9007199254740992 9223372036854775808 18446744073709551616 BLOCK COUNT CURSOR RESET \0 \r\n \
    1763712345678901 1763712345678901:bob ";

/// Words around which a value may be taken for a grant, or not any more.
const NEARLY_GRANTS: &str = "1763712345678901:bob 9007199254740991:alice 9007199254740992:alice \
    0999999999999999:alice 17637123456789011:bob 176371234567890:bob 1763712345678901: \
    176371234567890\0:bob";

fn one_of(words: &str, seed: &mut Seed) -> Vec<u8> {
    let words: Vec<_> = words.split(' ').collect();
    seed.pick(&words).as_bytes().to_vec()
}

pub(super) fn key(seed: &mut Seed) -> Vec<u8> {
    one_of(KEYS, seed)
}

fn word(seed: &mut Seed) -> Vec<u8> {
    match seed.below(12) {
        0 => noise(seed, 300),
        1 => vec![b'x'; [255, 256, 70_000][seed.below(3)]],
        2 | 3 => key(seed),
        _ => one_of(WORDS, seed),
    }
}

fn noise(seed: &mut Seed, longest: usize) -> Vec<u8> {
    (0..seed.below(longest)).map(|_| seed.number().to_le_bytes()[0]).collect()
}

/// A value: nearly always one that says something of a lock.
fn value(seed: &mut Seed) -> Vec<u8> {
    let mut value = one_of(NEARLY_GRANTS, seed);
    match seed.below(6) {
        0 => return word(seed),
        1 => value.extend(noise(seed, 300)),
        2 => {
            let at = seed.below(value.len());
            value[at] = seed.number().to_le_bytes()[0];
        }
        _ => {}
    }
    value
}

/// A lock command with any words, mostly as many as it takes.
pub(super) fn lock_command(seed: &mut Seed) -> Vec<Vec<u8>> {
    let mut words = vec![one_of(COMMANDS, seed)];
    let count = if seed.below(20) == 0 { seed.below(40) } else { 1 + seed.below(4) };
    words.extend((0..count).map(|place| if place == 0 { key(seed) } else { word(seed) }));
    words
}

/// Whether it may keep the connection waiting.
pub(super) fn may_wait(words: &[Vec<u8>]) -> bool {
    words[0].eq_ignore_ascii_case(b"LOCK.ACQUIRE")
        && words.iter().any(|word| word.eq_ignore_ascii_case(b"BLOCK"))
}

/// A request that waits, as a rule.
pub(super) fn patient(seed: &mut Seed) -> Vec<Vec<u8>> {
    let owner = if seed.below(4) == 0 { word(seed) } else { one_of("alice bob *", seed) };
    let [ttl, patience] = [(); 2].map(|()| seed.pick(&["1", "2", "30", "60000"]).as_bytes());
    let patience = if seed.below(3) == 0 { b"0" } else { patience };
    vec![
        b"LOCK.ACQUIRE".to_vec(),
        key(seed),
        owner,
        ttl.to_vec(),
        b"BLOCK".to_vec(),
        patience.to_vec(),
    ]
}

/// What somebody else does to the same keys. `dumped` is what DUMP said of one of them.
pub(super) fn strange(seed: &mut Seed, dumped: &[u8]) -> Vec<Vec<u8>> {
    let (one, other) = (key(seed), key(seed));
    let (value, millis) = (value(seed), seed.pick(&["0", "1", "20", "60000"]).as_bytes().to_vec());
    let place = seed.pick(&["0", "15", "16", "17", "300"]).as_bytes().to_vec();
    let words = |name: &str, rest: &[&[u8]]| {
        let rest = rest.iter().map(|word| word.to_vec());
        name.split(' ').map(|word| word.as_bytes().to_vec()).chain(rest).collect::<Vec<_>>()
    };
    match seed.below(24) {
        0..=2 => words("SET", &[&one, &value]),
        3..=5 => words("SET", &[&one, &value, b"PX", &millis]),
        6 => words("SETRANGE", &[&one, &place, &value]),
        7 => words("APPEND", &[&one, &value]),
        8 => words("GETSET", &[&one, &value]),
        9 => words("SETBIT", &[&one, &place, b"1"]),
        10 => words("RPUSH", &[&one, &value]),
        11 => words("PEXPIRE", &[&one, &millis]),
        12 => words("PEXPIREAT", &[&one, b"9223372036854775807"]),
        13 => words("PERSIST", &[&one]),
        14 => words("RENAME", &[&one, &other]),
        15 => words("COPY", &[&one, &other, b"REPLACE"]),
        16 => words("MOVE", &[&one, b"1"]),
        17 => words("DEL", &[&one, &other]),
        18 => words("UNLINK", &[&one]),
        19 => words("SWAPDB 0 1", &[]),
        20 => words(["FLUSHALL", "FLUSHDB", "SELECT 1", "SELECT 0"][seed.below(4)], &[]),
        21 => words("INCR", &[&one]),
        _ => {
            let mut payload = dumped.to_vec();
            if seed.below(2) == 0 && !payload.is_empty() {
                let at = seed.below(payload.len());
                payload[at] ^= 1 << seed.below(8);
            }
            words("RESTORE", &[&one, &millis, &payload, b"REPLACE"])
        }
    }
}
