//! Whatever is run behind the fence does and replies what it does and replies bare.

use super::{LONG, guarded};
use redis::Value;
use testkit::{
    Client, Seed, Server, Snapshot, is_older_than, start_pair, strings, wait_until_in_sync,
};

const COMMANDS: usize = 2_000;

/// `K` is a key, `V` a word, `N` a number, `F` a number with a fraction. What depends on time or chance is left out.
const TEMPLATES: &str = "\
    SET K V; SET K N; SET K V NX; SET K V XX GET; SET K V PXAT 9000000000000; SET K N KEEPTTL; \
    GET K; GETDEL K; GETEX K PERSIST; GETRANGE K 0 2; SETRANGE K 3 V; APPEND K N; STRLEN K; \
    INCR K; DECRBY K N; INCRBYFLOAT K F; MSET K N K V; MSETNX K V K V; MGET K K K; \
    SETBIT K 7 1; BITCOUNT K; BITFIELD K SET u8 0 N; DEL K; UNLINK K K; EXISTS K K; TYPE K; \
    RENAME K K; RENAMENX K K; COPY K K REPLACE; PERSIST K; PEXPIREAT K 9000000000000; \
    LPUSH K V N; RPUSH K V; LPOP K; RPOP K 2; LRANGE K 0 -1; LINSERT K BEFORE V N; LREM K 0 V; \
    LTRIM K 0 4; LMOVE K K LEFT RIGHT; BLPOP K K 0.01; HSET K V N V V; HGETALL K; HDEL K V; \
    HINCRBY K V N; HINCRBYFLOAT K V F; HLEN K; SADD K N N; SREM K N; SISMEMBER K N; SCARD K; \
    SUNIONSTORE K K K; SMOVE K K N; ZADD K F V N V; ZRANGE K 0 -1 WITHSCORES; ZSCORE K V; \
    ZINCRBY K F V; ZPOPMIN K; ZUNIONSTORE K 2 K K; ZRANGEBYSCORE K -inf N; ZMSCORE K V V; \
    XADD K 9-* f V; XLEN K; XRANGE K - +; XTRIM K MAXLEN 2; PFADD K V V; PFCOUNT K; \
    SORT K ALPHA; SORT K ALPHA STORE K; OBJECT ENCODING K; DUMP K; GEOADD K 13.4 N V; DBSIZE; \
    KEYS k1";

fn any(seed: &mut Seed) -> String {
    let templates: Vec<_> = TEMPLATES.split("; ").collect();
    let template = *seed.pick(&templates);
    let words = template.split(' ').map(|word| match word {
        "K" => format!("k{}", seed.below(6)),
        "V" => (*seed.pick(&["a", "bb", "-7", "\"\"", "01", "9223372036854775807"])).to_owned(),
        "N" => seed.below(50).to_string(),
        "F" => format!("{}.5", seed.below(9)),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// In the protocol in which modules get all replies.
fn connect(server: &Server, database: u32) -> Client {
    let mut client = if is_older_than((7, 0)) { server.client() } else { server.client_resp3() };
    client.cmd(format!("SELECT {database}"));
    client
}

#[test]
fn two_thousand_random_commands_do_and_reply_the_same() {
    let (mut primary, replica) =
        start_pair(Server::builder().aof(), Server::builder().without_module());
    // The lock is in a database of its own kind: the guarded commands count and list no more keys than the bare ones.
    let (mut bare, mut guard) = (connect(&primary, 1), connect(&primary, 0));
    bare.cmd("SET the-lock of-nobody");
    let fence = guard.grant("the-lock", "alice", LONG);
    let mut seed = Seed::announced();
    let mut errors = 0;
    for count in 0..COMMANDS {
        let command = any(&mut seed);
        let expected = bare.cmd(&*command);
        let reply = guard.cmd(guarded(fence, &command));
        assert_eq!(reply, expected, "{command}, after {count} others");
        errors += usize::from(matches!(reply, Value::ServerError(_)));
        if count % 50 == 49 {
            assert_same_data(&mut bare, &mut guard);
        }
        if seed.below(10) == 0 {
            let key = format!("DEL k{}", seed.below(6));
            assert_eq!(guard.cmd(guarded(fence, &key)), bare.cmd(&*key));
        }
    }
    assert!((COMMANDS / 50..COMMANDS * 9 / 10).contains(&errors), "{errors} errors");
    wait_until_in_sync(&primary, &replica);
    let live = Snapshot::of(&primary);
    assert_eq!(Snapshot::of(&replica), live);
    drop((bare, guard));
    primary.stop();
    primary.start_again();
    assert_eq!(Snapshot::of(&primary), live);
}

#[track_caller]
fn assert_same_data(bare: &mut Client, guard: &mut Client) {
    let keys = |client: &mut Client| {
        let mut keys = strings(&client.cmd("KEYS k*"));
        keys.sort_unstable();
        keys
    };
    let names = keys(guard);
    assert_eq!(names, keys(bare));
    for name in names {
        for look in [
            ["DUMP", &name].join(" "),
            ["OBJECT ENCODING", &name].join(" "),
            ["PTTL", &name].join(" "),
        ] {
            let (one, other) = (guard.cmd(&*look), bare.cmd(&*look));
            // The clock goes on between the two.
            let is_alike = match (&one, &other) {
                (Value::Int(one @ 1..), Value::Int(other @ 1..)) => one.abs_diff(*other) < 10_000,
                _ => one == other,
            };
            assert!(is_alike, "{look}: {one:?}, bare {other:?}");
        }
    }
}
