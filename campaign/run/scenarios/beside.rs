//! A primary that was replaced and does not know it, beside its successor. With asynchronous
//! replication both may hold a lock then. A store that compares fences relies on this: the fences
//! of either grow, and every fence of the successor is above all fences of the former primary. That
//! is promised until the clock has passed the first fence of the successor.

use crate::runner::now;
use redis::Value;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use testkit::replica::history_of;
use testkit::{Client, Server, Words, role_of};

/// Longer than sentinels take to demote it.
const LONGEST: Duration = Duration::from_secs(5);

const LOCKS: usize = 20;

/// Asks both for the same locks until the former primary has become a replica. Returns what is
/// wrong. `history` is the replication id of the former primary. With another id it has been chosen
/// again, and its fences are above all others.
pub(super) fn grants(former: &Server, history: &str, successor: &Server) -> Vec<String> {
    let (mut old, mut new) = (former.client(), successor.client());
    // For each lock: the highest fence of the former primary, and the lowest and highest of its
    // successor.
    let mut fences: HashMap<usize, (u64, u64, u64)> = HashMap::new();
    let mut wrong = Vec::new();
    let begin = Instant::now();
    for lock in (0..LOCKS).cycle() {
        if begin.elapsed() > LONGEST {
            break;
        }
        let (highest, lowest, last) = fences.entry(lock).or_insert((0, u64::MAX, 0));
        // It was demoted: it refuses, or has closed the connection.
        let Ok(fence) = grant(&mut old, lock) else { break };
        if fence <= *highest {
            wrong.push(format!("L2: the former primary gave {fence} after {highest}"));
        }
        *highest = fence;
        let fence = match grant(&mut new, lock) {
            Ok(fence) => fence,
            Err(told) => {
                // The successor may have been replaced too.
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

/// Acquires and releases the lock. The error is the reply.
fn grant(client: &mut Client, lock: usize) -> Result<u64, String> {
    let mut ask = |command: String| match client.try_cmd(command.words()) {
        Ok(Value::Int(number)) => Ok(u64::try_from(number).unwrap()),
        other => Err(format!("{other:?}")),
    };
    let fence = ask(format!("LOCK.ACQUIRE beside{lock} somebody 1000"))?;
    ask(format!("LOCK.RELEASE beside{lock} somebody"))?;
    Ok(fence)
}
