//! Whatever clients send, the server lives, every reply has its shape, and replicas agree.

use crate::support::{
    Client, Seed, Server, Snapshot, eventually, int, start_pair, wait_until_in_sync,
};
use redis::Value;

const COMMANDS: [&[u8]; 6] =
    [b"LOCK.ACQUIRE", b"LOCK.RELEASE", b"LOCK.EXTEND", b"LOCK.CHECK", b"LOCK.INFO", b"LOCK.HELP"];

/// What somebody else may do to the same keys.
const STRANGERS: [&str; 12] = [
    "SET a 12345",
    "SET b 9007199254740991:alice",
    "SET c \"\" PX 3",
    "SETRANGE d 300 x",
    "RPUSH list x",
    "PEXPIRE a 1",
    "PERSIST b",
    "RENAME a b",
    "DEL a b c d",
    "COPY a d",
    "FLUSHALL",
    "GETSET c 1763712345678901:bob",
];

fn word(seed: &mut Seed) -> Vec<u8> {
    let chosen: &[&[u8]] = &[
        b"a",
        b"b",
        b"c",
        b"d",
        b"list",
        b"alice",
        b"bob",
        b"*",
        b"",
        b"0",
        b"1",
        b"2",
        b"-1",
        b"60000",
        b"86400000",
        b"86400001",
        b"9007199254740991",
        b"9223372036854775808",
        b"BLOCK",
        b"\0",
        b"\r\n",
        b"1763712345678901",
    ];
    match seed.below(10) {
        0 => (0..seed.below(300)).map(|_| seed.next().to_le_bytes()[0]).collect(),
        1 => vec![b'x'; [255, 256, 70_000][seed.below(3)]],
        _ => seed.pick(chosen).to_vec(),
    }
}

/// A lock command with any words, mostly as many as it takes.
fn lock_command(seed: &mut Seed) -> Vec<Vec<u8>> {
    let mut words = vec![seed.pick(&COMMANDS).to_vec()];
    let count = if seed.below(20) == 0 { seed.below(40) } else { 2 + seed.below(3) };
    words.extend((0..count).map(|_| word(seed)));
    words
}

fn assert_shape(command: &[Vec<u8>], reply: &Value) {
    let known = match reply {
        Value::Nil | Value::Int(0..=9_007_199_254_740_991) => true,
        Value::Array(parts) => matches!(parts.len(), 2 | 10) || command[0] == b"LOCK.HELP",
        Value::ServerError(error) => matches!(error.code(), "ERR" | "WRONGTYPE"),
        _ => false,
    };
    let command: Vec<_> = command.iter().map(|word| word.escape_ascii().to_string()).collect();
    assert!(known, "{command:?} was answered {reply:?}");
    let internal = matches!(reply, Value::ServerError(error) if error.details().unwrap_or_default().contains("internal"));
    assert!(!internal, "{command:?} made the module panic");
}

#[test]
fn a_server_survives_thousands_of_senseless_commands_and_its_replica_agrees() {
    let mut seed = Seed::announced();
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut client = primary.client();
    for _ in 0..6_000 {
        if seed.below(4) == 0 {
            client.cmd(*seed.pick(&STRANGERS));
        } else {
            let command = lock_command(&mut seed);
            let reply = client.cmd(command.clone());
            assert_shape(&command, &reply);
        }
    }
    assert_eq!(client.counter("panics_caught"), 0);
    eventually("the replica agrees", || {
        wait_until_in_sync(&primary, &replica);
        // Short leases may run out between one look and the other.
        let (primary, replica) = (Snapshot::of(&primary), Snapshot::of(&replica));
        if primary == replica { Ok(()) } else { Err((primary, replica)) }
    });
}

#[test]
fn a_client_that_leaves_in_the_middle_of_a_command_does_no_harm() {
    let server = Server::start();
    let whole = b"*4\r\n$12\r\nLOCK.ACQUIRE\r\n$1\r\nk\r\n$5\r\nalice\r\n$5\r\n60000\r\n";
    for length in 1..whole.len() {
        server.client().send_bytes(&whole[..length]);
    }
    assert_eq!(server.cmd("EXISTS k"), int(0));
    let mut client = server.client();
    client.send_bytes(whole);
    assert!(matches!(client.receive(), Value::Int(_)));
}

#[test]
fn a_client_that_never_reads_its_replies_does_no_harm() {
    let server = Server::start();
    let mut deaf: Vec<Client> = (0..20).map(|_| server.client()).collect();
    for client in &mut deaf {
        for _ in 0..50 {
            client.send_bytes(b"LOCK.ACQUIRE k alice 60000\r\nLOCK.INFO k\r\nLOCK.HELP\r\n");
        }
    }
    drop(deaf);
    assert!(server.client().acquire("k", "alice", 60_000).is_some());
}

#[test]
fn commands_typed_by_hand_are_understood() {
    let server = Server::start();
    let mut client = server.client();
    client.send_bytes(b"lock.acquire \"a key\" 'an owner' 60000\r\n");
    let Value::Int(fence) = client.receive() else { panic!("no fence") };
    assert_eq!(client.check("a key", "an owner"), u64::try_from(fence).ok());
}
