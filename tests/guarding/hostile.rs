//! Requests that nobody would send: the server lives, and the connection is in step.

use super::{guarded, held, names_of_commands};
use redis::Value;
use testkit::{Client, Seed, Server, bulk, error, int, strings};

const UNKNOWN: &str = "ERR unknown command to guard";
const PONG: &str = "still here";

/// As a client sends them, whatever is in them.
fn send(client: &mut Client, fence: u64, command: &[&[u8]]) -> Value {
    let fence = fence.to_string();
    let head: [&[u8]; 4] = [b"LOCK.GUARD", b"the-lock", b"alice", fence.as_bytes()];
    let words: Vec<_> = [&head, command].concat().into_iter().map(<[u8]>::to_vec).collect();
    client.cmd(words)
}

#[track_caller]
fn assert_in_step(client: &mut Client) {
    assert_eq!(client.cmd(["ECHO", PONG]), bulk(PONG));
}

#[test]
fn words_of_any_bytes_length_and_number_are_passed_on_as_they_are() {
    let (_server, mut client, fence) = held();
    let (bytes, huge) = ((0..=255).collect::<Vec<u8>>(), vec![b'x'; 4 << 20]);
    for (key, value) in [(&bytes[..], &b"\0\r\n$-1\r\n"[..]), (b"k", &huge)] {
        assert_eq!(send(&mut client, fence, &[b"SET", key, value]), Value::Okay);
        assert_eq!(send(&mut client, fence, &[b"gEt", key]), bulk(value));
    }
    for name in [
        &b"SE\0T"[..],
        b"SET\0",
        b"\0",
        b"S\r\nET",
        b"\xff\xfe",
        b"SET ",
        b"*",
        b"object|encoding",
        &huge,
    ] {
        let reply = send(&mut client, fence, &[name, b"k", b"v"]);
        assert_eq!(reply, error(UNKNOWN), "{}", name[..2.min(name.len())].escape_ascii());
    }
    // Redis 6.2 repeats the word in its error, in which the client looks for the end again and again.
    let reply = send(&mut client, fence, &[b"OBJECT", &huge[..1 << 20], b"k"]);
    assert!(matches!(reply, Value::ServerError(_)));
    for count in [9_u32, 10_000, 100_000] {
        let members: Vec<String> = (0..count).map(|number| number.to_string()).collect();
        let request = guarded(fence, &format!("SADD set{count} {}", members.join(" ")));
        assert_eq!(client.cmd(request), int(count));
    }
    assert_in_step(&mut client);
}

#[test]
fn however_deep_it_is_nested_it_is_refused_and_has_the_first_key() {
    let (_server, mut client, fence) = held();
    for depth in [2, 50_000] {
        let nested = [&*guarded(fence, "")].repeat(depth).join("") + "GET k";
        assert_eq!(client.cmd(&*nested), error("ERR LOCK.GUARD cannot guard itself"));
        let keys = client.cmd(format!("COMMAND GETKEYS {nested}"));
        assert_eq!(strings(&keys), ["the-lock"]);
    }
    assert_in_step(&mut client);
}

/// A name with a zero byte that the server takes for that of LOCK.GUARD: it compares names up to there, among those
/// whose hash leads to the same place as that of the whole.
fn name_that_goes_on(client: &mut Client) -> Vec<u8> {
    const AT_ONCE: usize = 1_000;
    for first in (0..1_000_000).step_by(AT_ONCE) {
        let names: Vec<Vec<u8>> =
            (first..first + AT_ONCE).map(|it| format!("LOCK.GUARD\0{it}").into_bytes()).collect();
        for name in &names {
            client.send(vec![name.clone()]);
        }
        let replies: Vec<String> =
            names.iter().map(|_| format!("{:?}", client.receive())).collect();
        let known = replies.iter().position(|reply| !reply.contains("unknown command"));
        if let Some(known) = known {
            return names[known].clone();
        }
    }
    panic!("no such name")
}

#[test]
fn however_deep_it_is_nested_by_a_name_that_goes_on_it_has_the_first_key() {
    let (_server, mut client, _) = held();
    let name = name_that_goes_on(&mut client);
    let level = [&*name, b"the-lock", b"alice", b"1"].map(<[u8]>::to_vec);
    for depth in [1, 50_000] {
        let mut words: Vec<Vec<u8>> =
            "COMMAND GETKEYS LOCK.GUARD the-lock alice 1".split(' ').map(Vec::from).collect();
        for _ in 0..depth {
            words.extend_from_slice(&level);
        }
        words.extend(["GET", "k"].map(Vec::from));
        assert_eq!(strings(&client.cmd(words)), ["the-lock"]);
    }
    assert_in_step(&mut client);
}

/// Every command and subcommand that the server has, with as many words as it needs, and more.
#[test]
fn no_command_of_the_server_can_hurt_it_from_behind_the_fence() {
    let server = Server::builder().with_caller().start();
    let mut observer = server.client();
    let names = names_of_commands(&mut observer);
    assert!(names.len() > 200, "{}", names.len());
    let mut seed = Seed::announced();
    for name in names {
        // Whatever it did to the lock or the connection before.
        let mut client = server.client();
        client.cmd("FLUSHALL");
        let fence = client.grant("the-lock", "alice", super::LONG);
        for count in 0..6 {
            let junk = ["k", "1", "0", "the-lock", "-1", "*", "STREAMS", "x", "\"\"", "1.5"];
            let words: Vec<&str> = (0..count).map(|_| *seed.pick(&junk)).collect();
            let request = guarded(fence, &format!("{name} {}", words.join(" ")));
            let reply = client.try_cmd(request.trim_end());
            assert!(reply.is_ok(), "{request}: {reply:?}");
        }
        assert_in_step(&mut client);
    }
    assert!(server.is_up());
}
