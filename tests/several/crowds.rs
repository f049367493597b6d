//! More locks at once than one turn of the server has time for.

use super::{as_words, behind, names, takes};
use redis::Value;
use testkit::{Server, eventually, int};

#[test]
fn a_release_of_many_locks_lets_in_no_more_at_once_than_that_of_one() {
    const READERS: i64 = 60;
    let server = Server::start();
    let mut client = server.client();
    let all = names(40);
    let keys = as_words(&all);
    takes(&mut client, "alice", &keys).unwrap();
    for key in &keys {
        for number in 0..READERS {
            let ask = format!("LOCK.ACQUIRE {key} r{number} 60000 SHARE 0 TICKET 60000");
            assert_eq!(client.cmd(ask), Value::Nil);
        }
    }
    let release = format!("LOCK.RELEASE {} alice{}", keys[0], behind(&keys[1..]));
    let last = format!("LOCK.INFO {}", keys[39]);
    let replies = client.pipeline(&[&release, &last]);
    assert_eq!(replies, [int(40), Value::Nil], "others have their turn first");
    eventually("all are let in", || {
        let holders: Vec<_> =
            keys.iter().map(|key| client.info(key).map_or(0, |info| info.holders)).collect();
        if holders.iter().all(|holders| *holders == READERS) { Ok(()) } else { Err(holders) }
    });
}
