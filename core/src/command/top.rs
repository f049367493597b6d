//! `LOCK.TOP [count | RESET]`: the most contended locks.

pub use super::args::Listing as Request;
use super::{Access, Arg, Reply, Spec};

pub static SPEC: Spec = Spec {
    name: c"lock.top",
    summary: c"Returns the most contended locks, or begins to count anew.",
    complexity: c"O(N) with N locks returned, at most 128",
    since: c"0.1.0",
    history: &[],
    tips: Some(Spec::OF_EACH_SERVER),
    access: Access::Operator,
    args: &[Arg::COUNT_OR_RESET],
};

#[derive(Clone, Copy, Debug)]
pub struct Row<'r> {
    pub key: &'r [u8],
    pub db: i32,
    pub waits: u64,
    pub refused: u64,
    pub wait_total_ms: u64,
    pub wait_longest_ms: u64,
    /// At most this many further waits and refused tries were not counted.
    pub missed: u64,
}

/// The reply with these locks, most contended first. The reply to RESET is [`Reply::Ok`].
pub fn answer<'r>(rows: impl Iterator<Item = Row<'r>>) -> Reply<'r> {
    let row = |row: Row<'r>| {
        Reply::Map(vec![
            ("key", Reply::Bytes(row.key)),
            ("db", Reply::Integer(row.db.into())),
            ("waits", Reply::number(row.waits)),
            ("refused", Reply::number(row.refused)),
            ("wait-total", Reply::number(row.wait_total_ms)),
            ("wait-longest", Reply::number(row.wait_longest_ms)),
            ("missed", Reply::number(row.missed)),
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
    fn each_lock_is_a_map_in_the_order_given() {
        assert_eq!(Request::parse(&words("top 3 4")), Err(Error::WrongArity));
        assert_eq!(SPEC.usage(), "LOCK.TOP [count | RESET]");
        let (wait_total_ms, wait_longest_ms) = (30, 20);
        let row = |key, waits| Row {
            key,
            db: 3,
            waits,
            refused: 2,
            wait_total_ms,
            wait_longest_ms,
            missed: 5,
        };
        let shown = |key, waits| {
            Reply::Map(vec![
                ("key", Reply::Bytes(key)),
                ("db", Reply::Integer(3)),
                ("waits", Reply::Integer(waits)),
                ("refused", Reply::Integer(2)),
                ("wait-total", Reply::Integer(30)),
                ("wait-longest", Reply::Integer(20)),
                ("missed", Reply::Integer(5)),
            ])
        };
        let reply = answer([row(&b"k"[..], 7), row(b"less", 1)].into_iter());
        assert_eq!(reply, Reply::Array(vec![shown(b"k", 7), shown(b"less", 1)]));
    }
}
