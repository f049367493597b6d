//! `LOCK.WAITERS key [COUNT n]`: who waits for the lock, oldest first.

use super::{Access, Arg, Error, Reply, Spec, parse_integer};
use crate::lock::{Monotonic, Waiter};

pub(crate) static SPEC: Spec = Spec {
    name: c"lock.waiters",
    summary: c"Returns those who wait for a lock, oldest first.",
    complexity: c"O(N) with N waiters returned",
    since: c"0.1.0",
    history: &[],
    tips: Some(Spec::NONDETERMINISTIC),
    arity: -2,
    access: Access::Read,
    args: &[Arg::KEY, Arg::COUNT],
};

#[derive(Debug)]
pub(crate) struct Request {
    count: usize,
}

impl Request {
    pub(crate) fn parse(words: &[&[u8]]) -> Result<Self, Error> {
        let count = match *words {
            [_, _] => usize::MAX,
            [_, _, option, count] if option.eq_ignore_ascii_case(b"COUNT") => parse_integer(count)
                .filter(|&count| count > 0)
                .map(|count| usize::try_from(count).unwrap_or(usize::MAX))
                .ok_or(Error::CountNotPositive)?,
            [_, _, ..] => return Err(Error::CountNotPositive),
            _ => return Err(Error::WrongArity),
        };
        Ok(Self { count })
    }

    /// `client` tells the id of a waiter's connection.
    pub(crate) fn answer<'q, P: 'q>(
        &self,
        queue: impl Iterator<Item = &'q Waiter<P>>,
        client: impl Fn(&P) -> u64,
        now: Monotonic,
    ) -> Reply<'q> {
        let row = |waiter: &'q Waiter<P>| {
            let patience = waiter.gives_up.map(|end| Reply::number(end.millis_since(now)));
            Reply::Map(vec![
                ("owner", Reply::Bytes(waiter.owner.as_owner().as_bytes())),
                ("client", Reply::number(client(&waiter.parked))),
                ("waited", Reply::number(now.millis_since(waiter.since))),
                ("patience", patience.unwrap_or(Reply::FOREVER)),
            ])
        };
        Reply::Array(queue.take(self.count).map(row).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use crate::lock::{Owner, Ttl};

    const START: Monotonic = Monotonic::from_micros(7);

    fn waiter(owner: &str, gives_up: Option<Monotonic>) -> Waiter<u64> {
        Waiter {
            owner: Owner::new(owner.as_bytes()).unwrap().into(),
            ttl: Ttl::USUAL_LIMIT,
            since: START,
            gives_up,
            parked: 7,
        }
    }

    fn parse(line: &str) -> Result<Request, Error> {
        Request::parse(&words(line))
    }

    #[test]
    fn it_takes_a_key_and_a_positive_count() {
        assert_eq!(parse("lock.waiters").unwrap_err(), Error::WrongArity);
        for line in ["COUNT", "COUNT 0", "COUNT -1", "COUNT x", "FOO 1", "COUNT 1 2"] {
            assert_refused(
                parse(&format!("lock.waiters k {line}")),
                "ERR unknown option, expected COUNT and a positive integer",
            );
        }
    }

    #[test]
    fn the_oldest_come_first() {
        let queue = [waiter("a", Some(START.plus_millis(90))), waiter("b", None)];
        let rows = |line| {
            let later = START.plus_millis(20);
            let request = parse(line).unwrap();
            match request.answer(queue.iter(), |&client| client, later) {
                Reply::Array(rows) => rows,
                other => panic!("not an array: {other:?}"),
            }
        };
        let all = rows("lock.waiters k");
        assert_eq!(
            all[0],
            Reply::Map(vec![
                ("owner", Reply::Bytes(b"a")),
                ("client", Reply::Integer(7)),
                ("waited", Reply::Integer(20)),
                ("patience", Reply::Integer(70)),
            ])
        );
        assert_eq!(all.len(), 2);
        assert_eq!(rows("lock.waiters k count 1"), all[..1]);
    }

    #[test]
    fn patience_without_limit_is_minus_1() {
        let queue = [waiter("b", None)];
        let reply = parse("lock.waiters k").unwrap().answer(queue.iter(), |&client| client, START);
        let Reply::Array(rows) = reply else { panic!("not an array") };
        let Reply::Map(fields) = &rows[0] else { panic!("not a map") };
        assert_eq!(fields[3], ("patience", Reply::Integer(-1)));
    }
}
