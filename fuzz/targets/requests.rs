//! Any words, as a request of any command, about a key that holds anything: an error, or an answer that the holder and
//! nobody else could have got.

#![no_main]

use leasehold_core::command::acquire::{self, Step};
use leasehold_core::command::{Answer, Change, Error, Limits, Reply};
use leasehold_core::command::{check, extend, help, info, log, raise, release, top, waiters};
use libfuzzer_sys::fuzz_target;
use leasehold_core::lock::{Deadline, FenceClock, Hold, Moment, Owner, Stored, Ttl, Waiter};

const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT };

#[derive(Clone, Copy)]
struct Lock<'v> {
    stored: Stored<'v>,
    hold: Option<Hold<'v>>,
    others: usize,
    now: Moment,
}

/// A command and its words, what the key holds until when, how many wait, the time, and whether the holder itself asks.
type Input<'a> = (u8, Vec<&'a [u8]>, Content<'a>, Option<u64>, u8, u64, bool);

/// Nothing; another type; or a string, of digits and the rest or the rest alone.
type Content<'a> = Option<Option<(Option<u64>, &'a [u8])>>;

fuzz_target!(|input: Input<'_>| {
    let (command, mut words, content, millis, others, micros, is_holders) = input;
    // Times at which the fence clock has fences to give, as a rule.
    let now = Moment::from_micros(micros % (1 << 54));
    let value = content.flatten().map(|(digits, rest)| {
        let digits = digits.map(|number| format!("{:016}", number % (1 << 54))).unwrap_or_default();
        [digits.as_bytes(), rest].concat()
    });
    let stored = match (content, &value) {
        (_, Some(value)) => Stored::Text { value, deadline: millis.map(Deadline::from_millis) },
        (Some(_), None) => Stored::OtherType,
        (None, None) => Stored::Nothing,
    };
    let hold = stored.hold(now, &mut FenceClock::new()).ok().flatten();
    let lock = Lock { stored, hold, others: usize::from(others), now };
    if let (true, Some(hold), Some(owner)) = (is_holders, hold, words.get_mut(2)) {
        *owner = hold.owner;
    }
    // An error is an answer too.
    let _ = ask(command, &words, lock);
});

fn ask(command: u8, words: &[&[u8]], lock: Lock<'_>) -> Result<(), Error> {
    let fences = &mut FenceClock::new();
    let Lock { stored, others, now, .. } = lock;
    match command % 10 {
        0 => {
            let request = acquire::Request::parse(words, &LIMITS, || [b'7'; 36])?;
            assert!(request.ttl() <= LIMITS.max_ttl);
            let owner = request.owner().expect("it was looked at");
            let (change, step) = request.answer(stored, others, now, fences)?;
            assert_acquired(lock, owner, &change, &step);
        }
        1 => {
            let request = release::Request::parse(words)?;
            let answer = request.answer(stored, now, fences)?;
            assert_holders_own(lock, request.proof().owner, &answer, Reply::Integer(0));
        }
        2 => {
            let request = extend::Request::parse(words, &LIMITS)?;
            let answer = request.answer(stored, now, fences)?;
            assert_holders_own(lock, request.proof().owner, &answer, Reply::Integer(0));
        }
        3 => {
            let request = raise::Request::parse(words)?;
            let owner = Owner::new(words[2]).expect("it was looked at");
            let answer = request.answer(stored, now, fences)?;
            assert_holders_own(lock, owner, &answer, Reply::Nil);
        }
        4 => {
            let request = check::Request::parse(words)?;
            let owner = Owner::new(words[2]).expect("it was looked at");
            let reply = request.answer(stored, now, fences)?;
            assert_eq!(reply == Reply::Nil, !matches(lock, owner, words.get(3)));
        }
        5 => drop(info::Request::parse(words)?.answer(stored, others, now, fences)?),
        6 => {
            let nobody = std::iter::empty::<&Waiter<u64>>();
            drop(waiters::Request::parse(words)?.answer(nobody, |&client| client, now));
        }
        7 => drop(top::Request::parse(words)?),
        8 => drop(log::Request::parse(words)?),
        _ => drop(help::Request::parse(words)?.answer()),
    }
    Ok(())
}

fn assert_acquired(lock: Lock<'_>, owner: Owner<'_>, change: &Change<'_>, step: &Step<'_>) {
    let is_ours = lock.hold.is_some_and(|hold| hold.is_held_by(owner));
    match change {
        Change::Grant(grant) => {
            assert!(lock.hold.is_none() && lock.others == 0, "L1 and L4");
            assert_eq!(grant.owner, owner);
            assert!(!grant.deadline.has_passed(lock.now));
        }
        Change::Lease(deadline) => {
            assert!(is_ours && lock.hold.and_then(|hold| hold.deadline) < Some(*deadline));
        }
        Change::Nothing if is_ours => assert!(matches!(step, Step::Reply(_))),
        Change::Nothing => assert!(matches!(step, Step::Wait(_) | Step::Reply(Reply::Nil))),
        Change::Raise { .. } | Change::Free => panic!("{change:?}"),
    }
}

/// L3: whoever does not hold the lock changes nothing, and is told so.
fn assert_holders_own(lock: Lock<'_>, owner: Owner<'_>, answer: &Answer<'_>, refusal: Reply<'_>) {
    let is_ours = lock.hold.is_some_and(|hold| hold.is_held_by(owner));
    if answer.change != Change::Nothing {
        assert!(is_ours && answer.reply != refusal, "{answer:?}");
    } else if !is_ours {
        assert_eq!(answer.reply, refusal);
    }
}

fn matches(lock: Lock<'_>, owner: Owner<'_>, fence: Option<&&[u8]>) -> bool {
    let said = fence.and_then(|digits| command::parse_integer(digits));
    lock.hold.is_some_and(|hold| {
        hold.is_held_by(owner) && said.is_none_or(|said| said == hold.fence_number())
    })
}
