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
    arity: -1,
    access: Access::Operator,
    args: &[Arg::COUNT_OR_RESET],
};

/// One event of the reply.
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

    const ROW: Row<'static> = Row {
        id: 17,
        time: 1_763_000_000_000,
        event: "late-release",
        db: 3,
        key: b"k",
        owner: b"a",
        ms: Some(40),
    };

    #[test]
    fn it_takes_a_count_or_reset() {
        assert_eq!(Request::parse(&words("lock.log 3")), Ok(Request::Show { count: 3 }));
        assert_eq!(Request::parse(&words("lock.log reset")), Ok(Request::Reset));
        assert_eq!(Request::parse(&words("lock.log 3 4")), Err(Error::WrongArity));
        assert_eq!(SPEC.usage(), "LOCK.LOG [count | RESET]");
    }

    #[test]
    fn each_event_is_a_map_in_the_order_given() {
        let Reply::Array(rows) = answer([ROW, Row { id: 16, ..ROW }].into_iter()) else {
            panic!("not an array")
        };
        assert_eq!(
            rows[0],
            Reply::Map(vec![
                ("id", Reply::Integer(17)),
                ("time", Reply::Integer(1_763_000_000_000)),
                ("event", Reply::Bytes(b"late-release")),
                ("db", Reply::Integer(3)),
                ("key", Reply::Bytes(b"k")),
                ("owner", Reply::Bytes(b"a")),
                ("ms", Reply::Integer(40)),
            ])
        );
        let Reply::Map(fields) = &rows[1] else { panic!("not a map") };
        assert_eq!(fields[0], ("id", Reply::Integer(16)));
        assert_eq!(answer(std::iter::empty()), Reply::Array(vec![]));
    }

    #[test]
    fn what_was_left_of_a_lease_without_end_is_minus_1() {
        let Reply::Array(rows) = answer([Row { ms: None, ..ROW }].into_iter()) else {
            panic!("not an array")
        };
        let Reply::Map(fields) = &rows[0] else { panic!("not a map") };
        assert_eq!(fields[6], ("ms", Reply::Integer(-1)));
    }
}
