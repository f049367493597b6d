//! A primary that was replaced and does not know it, beside its successor. No lock with asynchronous replication is held by
//! one only then. What must hold is what a store that looks at fences relies on: those of either grow, and every one that
//! the successor gives out is above all of the former primary, whichever was asked first. That much is promised for as
//! long as the margin: until the clock has passed what the successor gave out first.

use crate::runner::now;
use redis::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use testkit::replica::history_of;
use testkit::{Client, Server, Words, role_of};

/// Longer than sentinels take, or it is demoted before.
const LONGEST: Duration = Duration::from_secs(5);

const LOCKS: usize = 20;

/// Asks both for the same locks until the former one has become a replica; what is wrong. `history` is that of the former
/// one while it was the primary: with another it has been chosen again, and its fences are above all others.
pub(super) fn grants(former: &Server, history: &str, successor: &Server) -> Vec<String> {
    let (mut old, mut new) = (former.client(), successor.client());
    // Of each lock, the highest of the former primary, and the lowest and the highest of its successor.
    let mut fences: HashMap<usize, (u64, u64, u64)> = HashMap::new();
    let mut wrong = Vec::new();
    let begin = Instant::now();
    for lock in (0..LOCKS).cycle() {
        if begin.elapsed() > LONGEST {
            break;
        }
        let (highest, lowest, last) = fences.entry(lock).or_insert((0, u64::MAX, 0));
        // Demoted: it refuses, or has ended the connection.
        let Ok(fence) = grant(&mut old, lock) else { break };
        if fence <= *highest {
            wrong.push(format!("L2: the former primary gave {fence} after {highest}"));
        }
        *highest = fence;
        let fence = match grant(&mut new, lock) {
            Ok(fence) => fence,
            Err(told) => {
                // Unless it was itself replaced meanwhile.
                if role_of(successor).as_deref() == Some("master") {
                    let what = "L5: the successor does not grant a lock that is free";
                    wrong.push(format!("{what}: {told}"));
                }
                break;
            }
        };
        if fence <= *last {
            wrong.push(format!("L2: the successor gave {fence} after {last}"));
        }
        (*last, *lowest) = (fence, fence.min(*lowest));
        if now() >= *lowest {
            break;
        }
        if *lowest <= *highest {
            if history_of(former) != history {
                break;
            }
            wrong
                .push(format!("L2: the successor gave {lowest}, and the former primary {highest}"));
        }
    }
    wrong
}

/// Granted and released again; or what it was told instead.
fn grant(client: &mut Client, lock: usize) -> Result<u64, String> {
    let mut ask = |command: String| match client.try_cmd(command.words()) {
        Ok(Value::Int(number)) => Ok(u64::try_from(number).unwrap()),
        other => Err(format!("{other:?}")),
    };
    let fence = ask(format!("LOCK.ACQUIRE beside{lock} somebody 1000"))?;
    ask(format!("LOCK.RELEASE beside{lock} somebody"))?;
    Ok(fence)
}
