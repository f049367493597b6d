//! `LOCK.WAITERS key [COUNT n]`: the waiters of the lock, oldest first. The default count is small enough that no
//! queue holds up the server. `LOCK.INFO` shows the length of the queue.

pub use super::args::count_of_rows as parse;
use super::{Access, Arg, Reply, Spec};
use crate::lock::{KeptWait, Monotonic, Waiter};

pub static SPEC: Spec = Spec {
    name: c"lock.waiters",
    summary: c"Lists the waiters of a lock, oldest first.",
    complexity: c"O(N) with N waiters returned, at most 100 without COUNT",
    since: c"0.1.0",
    history: &[(
        c"0.2.0",
        c"Added the fields share, kind and locks. Lists 100 waiters unless COUNT says otherwise.",
    )],
    tips: Some(Spec::NONDETERMINISTIC),
    access: Access::List,
    args: &[Arg::KEY, Arg::COUNT],
};

/// The first `count` waiters, each with the number of locks that it waits for. `client` returns the id of a waiting
/// connection.
pub fn answer<'q, C: 'q>(
    count: usize,
    queue: impl Iterator<Item = (&'q Waiter<C>, usize)>,
    client: impl Fn(&C) -> u64,
    now: Monotonic,
) -> Reply<'q> {
    let row = |(waiter, locks): (&'q Waiter<C>, usize)| {
        let patience = waiter.gives_up.map(|end| Reply::number(end.millis_since(now)));
        let (client, kind) = match &waiter.wait {
            KeptWait::Blocked(blocked) => (client(blocked), "block"),
            KeptWait::Ticket(ticket) => (ticket.client, "ticket"),
        };
        Reply::Map(vec![
            ("owner", Reply::Bytes(waiter.owner.as_owner().as_bytes())),
            ("client", Reply::number(client)),
            ("waited", Reply::number(now.millis_since(waiter.since))),
            ("patience", patience.unwrap_or(Reply::FOREVER)),
            ("share", Reply::share(waiter.share)),
            ("kind", Reply::Bytes(kind.as_bytes())),
            ("locks", Reply::count(locks)),
        ])
    };
    Reply::Array(queue.take(count).map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::Error;
    use super::super::testing::*;
    use super::*;
    use crate::lock::{Owner, Share, Ttl};

    const START: Monotonic = Monotonic::from_micros(7);

    fn waiter(owner: &str, gives_up: Option<Monotonic>) -> Waiter<u64> {
        Waiter {
            owner: Owner::new(owner.as_bytes()).unwrap().into(),
            ttl: Ttl::USUAL_LIMIT,
            share: Share::UNLIMITED,
            since: START,
            gives_up,
            ephemeral: None,
            wait: KeptWait::Blocked(7),
        }
    }

    fn rows<'q>(options: &str, queue: &'q [Waiter<u64>]) -> Vec<Reply<'q>> {
        let count = parse(&words(&format!("waiters k{options}"))).unwrap();
        let queue = queue.iter().map(|waiter| (waiter, 1));
        match answer(count, queue, |&client| client, START.plus_millis(20)) {
            Reply::Array(rows) => rows,
            other => panic!("not an array: {other:?}"),
        }
    }

    #[test]
    fn the_oldest_come_first_and_a_hundred_at_most_unless_more_are_asked_for() {
        let queue = [waiter("a", Some(START.plus_millis(90))), waiter("b", None)];
        let shown = |owner, patience| {
            Reply::Map(vec![
                ("owner", Reply::Bytes(owner)),
                ("client", Reply::Integer(7)),
                ("waited", Reply::Integer(20)),
                ("patience", Reply::Integer(patience)),
                ("share", Reply::Integer(0)),
                ("kind", Reply::Bytes(b"block")),
                ("locks", Reply::Integer(1)),
            ])
        };
        assert_eq!(rows("", &queue), [shown(b"a", 70), shown(b"b", -1)]);
        assert_eq!(rows(" count 1", &queue), [shown(b"a", 70)]);
        let queue: Vec<_> = (0..101).map(|number| waiter(&format!("w{number}"), None)).collect();
        for (options, shown) in
            [("", 100), (" COUNT 99", 99), (" COUNT 102", 101), (" COUNT -1", 101)]
        {
            assert_eq!(rows(options, &queue).len(), shown, "{options}");
        }
        assert_eq!(parse(&words("waiters")), Err(Error::WrongArity));
        for options in ["COUNT", "COUNT 0", "COUNT -2", "COUNT x", "FOO 1", "COUNT 1 2"] {
            let parsed = parse(&words(&format!("waiters k {options}")));
            assert_eq!(parsed, Err(Error::CountNotPositive), "{options}");
        }
    }
}
