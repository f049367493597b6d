//! A pool of five, which many want.

use super::{LONG, Scene, asks, holders, share, waits};
use redis::Value;
use testkit::crowd::Crowd;
use testkit::{Server, aof, field};

const CLIENTS: usize = 200;

/// How often somebody is let in.
const TURNS: usize = 3_000;

const PERMITS: usize = 5;

/// The deadline of a hold that was given back, and where it stands in a line.
const ENDED: &[u8] = b"00000000000000";
const DEADLINE_AT: usize = 17;

/// No more than five have a permit; and while anybody waits, no fewer.
#[track_caller]
fn assert_full(info: &Value) {
    let number = |name| match field(info, name) {
        Some(&Value::Int(number)) => usize::try_from(number).unwrap(),
        other => panic!("{name} is {other:?}"),
    };
    let (holders, waiters) = (number("holders"), number("waiters"));
    assert!(holders <= PERMITS, "{holders} have a permit");
    assert!(waiters == 0 || holders == PERMITS, "{waiters} wait, and {holders} have a permit");
}

/// How many have a permit after each command that a replica was sent, or reads in a file.
fn holders_by_the_file(server: &Server) -> Vec<usize> {
    let mut value = Vec::new();
    let step = |command: Vec<Vec<u8>>| {
        let words: Vec<_> = command.iter().map(Vec::as_slice).collect();
        match words[..] {
            [b"SET", b"k", written, ..] => value = written.to_vec(),
            [b"APPEND", b"k", appended] => value.extend_from_slice(appended),
            [b"SETRANGE", b"k", at, over] => {
                let at: usize = str::from_utf8(at).unwrap().parse().unwrap();
                value[at..at + over.len()].copy_from_slice(over);
            }
            [b"DEL", b"k"] => value.clear(),
            [b"PEXPIREAT", b"k", _] => {}
            _ => panic!("{command:?}"),
        }
        let lines = value.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.filter(|line| line[DEADLINE_AT..][..ENDED.len()] != *ENDED).count()
    };
    aof::commands(server).into_iter().map(step).collect()
}

#[test]
fn a_pool_of_five_under_200_clients_never_has_six_and_is_never_idle_while_somebody_waits() {
    let scene = Scene::start();
    let mut crowd = Crowd::of(&scene.primary, CLIENTS);
    let asks = |index| format!("{} BLOCK 0", asks("k", &format!("w{index}"), LONG, 5));
    (0..CLIENTS).for_each(|index| crowd.send(index, asks(index)));
    let (mut asked, mut released, mut seen_free) = (CLIENTS, 0, 0);
    let (mut fences, mut served) = (Vec::new(), [0; CLIENTS]);
    while released < TURNS || seen_free == 0 {
        for (index, reply) in crowd.receive() {
            match reply {
                Some(Value::Int(1)) => released += 1,
                Some(Value::Int(fence)) => {
                    fences.push(fence);
                    served[index] += 1;
                    let release = format!("LOCK.RELEASE k w{index} {fence}");
                    crowd.send_all(index, &["LOCK.INFO k", &release, "LOCK.INFO k"]);
                    if asked < TURNS {
                        asked += 1;
                        crowd.send(index, asks(index));
                    }
                }
                Some(Value::Nil) => seen_free += 1,
                Some(info @ Value::Array(_)) => assert_full(&info),
                other => panic!("member {index} received {other:?}"),
            }
        }
    }
    assert_eq!((fences.len(), seen_free), (TURNS, 1), "it was free before the last had left");
    fences.sort_unstable();
    assert!(fences.windows(2).all(|pair| pair[0] < pair[1]), "a fence was given out twice");
    assert!(served.iter().all(|turns| *turns > 0), "{served:?}");
    let steps = holders_by_the_file(&scene.primary);
    assert!(steps.len() > TURNS && steps.iter().all(|holders| *holders <= PERMITS));
    assert_eq!(steps.last(), Some(&0));
    scene.agree();
}

#[test]
fn whoever_waits_for_a_permit_is_served_in_the_order_of_arrival() {
    let scene = Scene::start();
    let mut client = scene.client();
    for number in 0..PERMITS {
        share(&mut client, &format!("first-{number}"), LONG, 5).unwrap();
    }
    let waiting: Vec<_> =
        (0..60).map(|number| waits(&scene.primary, &format!("w{number}"), 5)).collect();
    for _ in 0..60 {
        let inside = holders(&mut client);
        assert_eq!(inside.len(), PERMITS, "{inside:?}");
        assert!(client.release("k", &inside[2]));
    }
    assert_eq!(client.info("k").unwrap().waiters, 0);
    let fences: Vec<_> = waiting.into_iter().map(|mut waiter| waiter.fence()).collect();
    assert!(fences.is_sorted(), "first come, first served");
    scene.agree();
}
