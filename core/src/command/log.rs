//! `LOCK.LOG [count | RESET]`: the latest noteworthy events, newest first.

pub use super::args::Listing as Request;
use super::{Access, Arg, Reply, Spec};

pub static SPEC: Spec = Spec {
    name: c"lock.log",
    summary: c"Returns the last noteworthy events, newest first, or forgets them.",
    complexity: c"O(N) with N events returned",
    since: c"0.1.0",
    history: &[],
    tips: Some(Spec::OF_EACH_SERVER),
    access: Access::Operator,
    args: &[Arg::COUNT_OR_RESET],
};

#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    pub id: u64,
    /// Unix milliseconds.
    pub time: u64,
    pub event: &'static str,
    pub db: i32,
    pub key: &'r [u8],
    pub owner: &'r [u8],
    /// `None` for a lease without an end.
    pub ms: Option<u64>,
}

/// The reply with these events, newest first. The reply to RESET is [`Reply::Ok`].
pub fn answer<'r>(rows: impl Iterator<Item = Row<'r>>) -> Reply<'r> {
    let row = |row: Row<'r>| {
        Reply::Map(vec![
            ("id", Reply::number(row.id)),
            ("time", Reply::number(row.time)),
            ("event", Reply::Bytes(row.event.as_bytes())),
            ("db", Reply::Integer(row.db.into())),
            ("key", Reply::Bytes(row.key)),
            ("owner", Reply::Bytes(row.owner)),
            ("ms", row.ms.map_or(Reply::FOREVER, Reply::number)),
        ])
    };
    Reply::Array(rows.map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::super::testing::*;
    use super::*;

    #[test]
    fn each_event_is_a_map_in_the_order_given() {
        assert_eq!(Request::parse(&words("log 3 4")), Err(Error::WrongArity));
        assert_eq!(SPEC.usage(), "LOCK.LOG [count | RESET]");
        let (key, owner, event) = (&b"k"[..], &b"a"[..], "late-release");
        let row = |id, ms| Row { id, time: 1_763_000_000_000, event, db: 3, key, owner, ms };
        let shown = |id, ms| {
            Reply::Map(vec![
                ("id", Reply::Integer(id)),
                ("time", Reply::Integer(1_763_000_000_000)),
                ("event", Reply::Bytes(b"late-release")),
                ("db", Reply::Integer(3)),
                ("key", Reply::Bytes(b"k")),
                ("owner", Reply::Bytes(b"a")),
                ("ms", Reply::Integer(ms)),
            ])
        };
        let reply = answer([row(17, Some(40)), row(16, None)].into_iter());
        assert_eq!(reply, Reply::Array(vec![shown(17, 40), shown(16, -1)]));
    }
}
