//! Any words, as a request of any command, about a key that holds anything: an error, or an answer
//! that a holder and nobody else could have got.

#![no_main]

use leasehold_core::command::guard::Described;
use leasehold_core::command::{Also, Decide, Error, MayWait, Reply};
use leasehold_core::command::{
    acquire, check, drop, extend, guard, help, holders, info, raise, release, waiters,
};
use leasehold_core::lock::{
    Checked, Deadline, Decision, FenceClock, Hold, Limits, Moment, Monotonic, Outcome, Owner,
    Proof, Share, Stored, Ttl, Wait, Waiter, Write,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { max_ttl: Ttl::USUAL_LIMIT, max_holders: 3 };

/// A lock, and how many wait for it.
#[derive(Clone, Copy)]
struct Lock<'v> {
    stored: Stored<'v>,
    holds: &'v [Hold<'v>],
    waiters: usize,
    now: Moment,
}

/// One of several holds: its fence, its deadline, how many it tolerates, and its owner.
type Line<'a> = (u64, u64, u32, &'a [u8]);

/// Nothing; another type; or a string: lines, and digits and the rest or the rest alone.
type Content<'a> = Option<Option<(Vec<Line<'a>>, Option<u64>, &'a [u8])>>;

/// A command and its words, what the key holds until when, how many wait, the time, and which of
/// the holders asks, if one of them does.
type Input<'a> = (u8, Vec<&'a [u8]>, Content<'a>, Option<u64>, u8, u64, Option<u8>);

fuzz_target!(|input: Input<'_>| {
    let (command, mut words, content, millis, waiters, micros, asker) = input;
    // Times at which the fence clock has fences to give, as a rule.
    let now = Moment::from_micros(micros % (1 << 54));
    let is_there = content.is_some();
    let value = content.flatten().map(|(lines, digits, rest)| {
        let lines = lines.into_iter().flat_map(|parts| line(parts, now)).collect::<Vec<_>>();
        let digits = digits.map(|number| format!("{:016}", number % (1 << 54))).unwrap_or_default();
        [&lines, digits.as_bytes(), rest].concat()
    });
    let stored = match &value {
        Some(value) => Stored::Text { value, deadline: millis.map(Deadline::from_millis) },
        None if is_there => Stored::OtherType,
        None => Stored::Nothing,
    };
    let holds = stored.holds(now, &mut FenceClock::new());
    let holds: Vec<Hold<'_>> = holds.map(|holds| holds.collect()).unwrap_or_default();
    let lock = Lock { stored, holds: &holds, waiters: usize::from(waiters), now };
    let asker = asker.and_then(|number| holds.get(usize::from(number) % holds.len().max(1)));
    if let (Some(hold), Some(owner)) = (asker, words.get_mut(2)) {
        *owner = hold.owner;
    }
    // An error is an answer too.
    let _ = ask(command, &words, lock);
});

/// As the module writes it, with a deadline near the present.
fn line((fence, deadline, share, owner): Line<'_>, now: Moment) -> Vec<u8> {
    let deadline = now.millis().wrapping_add(deadline % 1_000) % 100_000_000_000_000;
    let (fence, len) = (fence % (1 << 54), owner.len() % 1_000);
    let head = format!("{fence:016} {deadline:014} {:05} {len:03}:", share % 8);
    [head.as_bytes(), owner, b"\n"].concat()
}

fn ask(command: u8, words: &[&[u8]], lock: Lock<'_>) -> Result<(), Error> {
    let Lock { waiters, now, .. } = lock;
    match command % 10 {
        0 => {
            let request = acquire::Request::parse(words, &LIMITS, || [b'7'; 36])?;
            let wanted = request.wanted()?;
            assert!(wanted.ttl <= LIMITS.max_ttl);
            for also in [None, request.also()] {
                let (decision, outcomes) = decided(&request, also, words, lock)?;
                if let Decision::Wait(Wait::Ticket(ticket)) = decision {
                    assert!(ticket.lasts <= LIMITS.max_ttl);
                    assert!(
                        ticket.channel.is_none_or(|channel| (1..=255).contains(&channel.len()))
                    );
                }
                for (outcome, write) in outcomes {
                    assert_acquired(lock, wanted.owner, wanted.share, &outcome, write);
                }
                request.reply(&decision)?;
            }
        }
        1 => {
            let request = release::Request::parse(words)?;
            for also in [None, request.also()] {
                let (_decision, outcomes) = decided(&request, also, words, lock)?;
                for (outcome, write) in outcomes {
                    let is_refused = matches!(outcome, Outcome::NotReleased(_));
                    assert_only_holders(lock, request.owner()?, write, is_refused);
                }
            }
        }
        2 => {
            let request = extend::Request::parse(words, &LIMITS)?;
            for also in [None, request.also()] {
                let (decision, outcomes) = decided(&request, also, words, lock)?;
                let is_refused = extend::reply(&decision) == Reply::Integer(0);
                for (_, write) in outcomes {
                    assert_only_holders(lock, request.owner()?, write, is_refused);
                }
            }
        }
        3 => {
            let request = raise::Request::parse(words)?;
            let (decision, outcomes) = decided(&request, None, words, lock)?;
            let is_refused = raise::reply(&decision) == Reply::Nil;
            for (_, write) in outcomes {
                assert_only_holders(lock, request.owner()?, write, is_refused);
            }
        }
        4 => {
            let proof = &check::parse(words)?;
            let holders = lock.stored.holders(proof.owner, now, &mut FenceClock::new())?;
            let reply = check::reply(leasehold_core::lock::check(&holders, proof));
            assert_eq!(reply != Reply::Nil, holds(lock, proof));
        }
        5 => {
            info::parse(words)?;
            drop(info::answer(lock.holds.iter().copied(), waiters, now));
        }
        6 => {
            let count = holders::parse(words)?;
            drop(holders::answer(count, lock.holds.iter().copied(), now));
        }
        7 => {
            let nobody = std::iter::empty::<(&Waiter<u64>, usize)>();
            let count = waiters::parse(words)?;
            drop(waiters::answer(count, nobody, |&client| client, Monotonic::from_micros(0)));
        }
        8 => guarded(words, lock)?,
        _ => {
            if let Ok(request) = drop::Request::parse(words) {
                let (_decision, outcomes) = decided(&request, None, words, lock)?;
                for (outcome, write) in outcomes {
                    let is_refused = matches!(outcome, Outcome::NotReleased(_));
                    assert_only_holders(lock, request.owner()?, write, is_refused);
                }
            }
            help::parse(words)?;
            drop(help::answer());
        }
    }
    Ok(())
}

/// The words behind the fence: what the server says of a command, its name first.
fn guarded(words: &[&[u8]], lock: Lock<'_>) -> Result<(), Error> {
    let proof = &guard::parse(words)?;
    assert!(proof.fence.is_some() && !guard::is_itself(words[guard::COMMAND_AT]));
    let holders = lock.stored.holders(proof.owner, lock.now, &mut FenceClock::new())?;
    let checked = leasehold_core::lock::check(&holders, proof);
    assert_eq!(checked != Checked::NotHolder, holds(lock, proof));
    let (name, said) = (words[guard::COMMAND_AT], &words[guard::COMMAND_AT + 1..]);
    let (categories, flags) = said.iter().partition(|word| word.starts_with(b"@"));
    let described = Described { name, arity: lock.waiters as i64 - 128, flags, categories };
    let guarded = described.guarded()?;
    assert!(!described.flags.contains(&&b"admin"[..]), "{described:?}");
    let is_ours = name.to_ascii_lowercase().starts_with(b"lock.");
    assert!(is_ours || !described.flags.contains(&&b"module"[..]), "{described:?}");
    let fits = guarded.check_arity(words.len()).is_ok();
    assert_eq!(
        fits,
        described.arity == words.len() as i64
            || described.arity < 0 && -described.arity <= words.len() as i64
    );
    Ok(())
}

/// What it comes to for locks that are all as this one, and what is written of each of which there is anything to tell. All are
/// written, or none.
fn decided<'r>(
    request: &'r impl Decide,
    also: Option<&Also<'_>>,
    words: &[&[u8]],
    lock: Lock<'_>,
) -> Result<(Decision<'r>, Vec<(Outcome<'r>, Write<'r>)>), Error> {
    let mut keys = also.map_or(Vec::new(), |also| also.keys.clone());
    assert!(keys.len() <= 128);
    keys.extend(words.get(1));
    let count = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), count, "a key is named twice");
    let fences = &mut FenceClock::new();
    let holders = lock.stored.holders(request.owner()?, lock.now, fences)?;
    let standings = vec![request.stand(&holders, lock.waiters); count];
    let decision = request.decide(&standings, lock.now, fences)?;
    let outcomes = (0..count).filter_map(|at| decision.outcome(at, &holders, lock.now));
    let all: Vec<_> = outcomes.map(|outcome| (outcome, outcome.write(&holders))).collect();
    let written = all.iter().filter(|(_, write)| *write != Write::Keep).count();
    assert!(written == 0 || written == count, "all or none");
    Ok((decision, all))
}

fn is_held_by(lock: Lock<'_>, owner: Owner<'_>) -> bool {
    lock.holds.iter().any(|hold| hold.is_held_by(owner))
}

fn assert_acquired(
    lock: Lock<'_>,
    owner: Owner<'_>,
    share: Share,
    outcome: &Outcome<'_>,
    write: Write<'_>,
) {
    match outcome {
        Outcome::Granted { grant, former, .. } => {
            assert_eq!((grant.owner, grant.share), (owner, share));
            assert!(!grant.deadline.has_passed(lock.now));
            assert!(former.is_some() || lock.waiters == 0, "L4");
            let others = lock.holds.len() - usize::from(former.is_some());
            let shares = lock.holds.iter().map(|hold| hold.share.number()).chain([share.number()]);
            let least = shares.filter(|&share| share > 0).min();
            let admitted = least.is_none_or(|least| others < least as usize);
            assert!(admitted && others < LIMITS.max_holders || others == 0, "L1");
        }
        Outcome::Again { .. } => assert!(is_held_by(lock, owner)),
        _ => assert_eq!(write, Write::Keep),
    }
}

/// L3: whoever does not hold the lock changes nothing, and is told so.
fn assert_only_holders(lock: Lock<'_>, owner: Owner<'_>, write: Write<'_>, is_refused: bool) {
    if write != Write::Keep {
        assert!(is_held_by(lock, owner) && !is_refused, "{write:?}");
    } else if !is_held_by(lock, owner) {
        assert!(is_refused);
    }
}

/// The last of two holds of one owner, which a stranger wrote, is its own.
fn holds(lock: Lock<'_>, proof: &Proof<'_>) -> bool {
    let own = lock.holds.iter().rev().find(|hold| hold.is_held_by(proof.owner));
    own.is_some_and(|hold| hold.matches(proof))
}
