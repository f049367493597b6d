//! What somebody might send: words, whole commands of ours with any of them, and what others may do to the same keys.

use testkit::Seed;

const COMMANDS: [&str; 11] = [
    "LOCK.ACQUIRE",
    "LOCK.RELEASE",
    "LOCK.EXTEND",
    "LOCK.RAISE",
    "LOCK.CHECK",
    "LOCK.GUARD",
    "LOCK.INFO",
    "lock.waiters",
    "LOCK.TOP",
    "LOCK.LOG",
    "LOCK.HELP",
];

const KEYS: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"list", b""];

const WORDS: [&[u8]; 26] = [
    b"alice",
    b"bob",
    b"*",
    b"",
    b"0",
    b"1",
    b"2",
    b"30",
    b"-1",
    b"+1",
    b"01",
    b"1e3",
    b"60000",
    b"86400000",
    b"86400001",
    b"9007199254740991",
    b"9007199254740992",
    b"9223372036854775808",
    b"18446744073709551616",
    b"BLOCK",
    b"COUNT",
    b"RESET",
    b"\0",
    b"\r\n",
    b"1763712345678901",
    b"1763712345678901:bob",
];

/// Words around which a value may be taken for a grant, or not any more.
const NEARLY_GRANTS: [&[u8]; 8] = [
    b"1763712345678901:bob",
    b"9007199254740991:alice",
    b"9007199254740992:alice",
    b"0999999999999999:alice",
    b"17637123456789011:bob",
    b"176371234567890:bob",
    b"1763712345678901:",
    b"176371234567890\0:bob",
];

const LONGEST_PATIENCE: u64 = 3_153_600_000_000;

/// How long somebody might wait, and what is nearly a number.
const NEARLY_PATIENCE: [&[u8]; 16] = [
    b"30",
    b"3153600000000",
    b"3153600000001",
    b"-0",
    b"-30",
    b"+30",
    b"030",
    b"30.0",
    b" 30",
    b"30 ",
    b"30\0",
    b"\x0030",
    b"0x1e",
    b"inf",
    b"\xff",
    b"99999999999999999999999999999999",
];

const NEARLY_BLOCK: [&[u8]; 8] =
    [b"BLOCK", b"BLOCK", b"BLOCK", b"block", b"BLOC", b"BLOCKS", b"BLOCK\0", b""];

pub(super) fn key(seed: &mut Seed) -> Vec<u8> {
    seed.pick(&KEYS).to_vec()
}

fn word(seed: &mut Seed) -> Vec<u8> {
    match seed.below(12) {
        0 => noise(seed, 300),
        1 => vec![b'x'; [255, 256, 70_000][seed.below(3)]],
        2 | 3 => key(seed),
        _ => seed.pick(&WORDS).to_vec(),
    }
}

fn noise(seed: &mut Seed, longest: usize) -> Vec<u8> {
    (0..seed.below(longest)).map(|_| seed.number().to_le_bytes()[0]).collect()
}

/// A value: nearly always one that says something of a lock.
fn value(seed: &mut Seed) -> Vec<u8> {
    let mut value = seed.pick(&NEARLY_GRANTS).to_vec();
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
    let mut words = vec![seed.pick(&COMMANDS).as_bytes().to_vec()];
    let count = if seed.below(20) == 0 { seed.below(40) } else { 1 + seed.below(4) };
    words.extend((0..count).map(|place| if place == 0 { key(seed) } else { word(seed) }));
    words
}

/// Options of a request, nearly always wrong ones: without a number, with one too many, or what is no number.
pub(super) fn nearly_patient(seed: &mut Seed) -> Vec<Vec<u8>> {
    let mut words = patient(seed);
    let patience = match seed.below(3) {
        0 => word(seed),
        1 => seed.pick(&NEARLY_PATIENCE).to_vec(),
        _ => words[5].clone(),
    };
    let option = seed.pick(&NEARLY_BLOCK).to_vec();
    words.truncate(4);
    match seed.below(8) {
        0 => words.push(option),
        1 => words.extend([patience, option]),
        2 => words.extend([option.clone(), patience.clone(), option, patience]),
        3 => words.extend([option.clone(), option, patience]),
        4 => words.extend([option, patience, word(seed)]),
        _ => words.extend([option, patience]),
    }
    words
}

/// Whether it may keep the connection waiting: nothing is wrong with how it asks to.
pub(super) fn waits(words: &[Vec<u8>]) -> bool {
    let is_patience = |word: &[u8]| {
        let number = str::from_utf8(word).ok().and_then(|text| text.parse::<u64>().ok());
        // Rust takes `+30` and `030` for numbers too.
        number.is_some_and(|millis| {
            millis <= LONGEST_PATIENCE && millis.to_string().as_bytes() == word
        })
    };
    is_request(words)
        && words.len() == 6
        && words[4].eq_ignore_ascii_case(b"BLOCK")
        && is_patience(&words[5])
}

/// Whether it has options, and not those of one that waits: it must be refused.
pub(super) fn is_misworded(words: &[Vec<u8>]) -> bool {
    is_request(words) && words.len() > 4 && !waits(words)
}

fn is_request(words: &[Vec<u8>]) -> bool {
    words[0].eq_ignore_ascii_case(b"LOCK.ACQUIRE")
}

/// A request that waits, as a rule.
pub(super) fn patient(seed: &mut Seed) -> Vec<Vec<u8>> {
    let owner = if seed.below(4) == 0 { word(seed) } else { seed.pick(&WORDS[..3]).to_vec() };
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
