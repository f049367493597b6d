//! What is shown while the program waits: at a terminal one line that changes, elsewhere a log line for each
//! change.

use crate::connecting::{Place, is_silence};
use crate::duration::show;
use crate::output::{self, printable};
use leasehold_client::{Error, Fence, LockInfo, Waiter};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::time::{MissedTickBehavior, interval};

/// A shorter wait shows nothing.
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// How often to ask again about a lock that changes hands meanwhile.
const MOST_LOOKS: usize = 3;

/// What a new log line is written for.
#[derive(PartialEq, Eq)]
enum State {
    Held {
        name: String,
        holder: String,
        fence: Fence,
        before: Option<u64>,
    },
    Silent,
    /// The lock is about to be granted.
    Free,
}

/// Shows the wait until it is dropped. `owner` is the waiter, if known.
pub(crate) async fn show_waiting(place: &Place, names: &[String], owner: Option<&str>) {
    if output::is_quiet() {
        return std::future::pending().await;
    }
    let mut ticks = interval(BETWEEN_LOOKS);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let mut last = None;
    loop {
        ticks.tick().await;
        let (state, text) = look(place, names, owner).await;
        if output::is_at_terminal() {
            output::show_line(&text);
        } else if last.as_ref() != Some(&state) && state != State::Free {
            output::say(&text);
        }
        last = Some(state);
    }
}

async fn look(place: &Place, names: &[String], owner: Option<&str>) -> (State, String) {
    let wanted = names.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", ");
    for name in names {
        match holder_and_queue(place, name).await {
            Ok(None) => {}
            Ok(Some((info, queue))) => {
                let ours = queue.iter().position(|waiter| Some(waiter.owner.as_str()) == owner);
                let before = ours.and_then(|before| u64::try_from(before).ok());
                let waiting = match (before, info.waiters) {
                    (Some(0), _) => ", we are next".to_owned(),
                    (Some(before), _) => format!(", {before} before us"),
                    (None, Some(waiters @ 1..)) => format!(", {waiters} wait"),
                    (None, _) => String::new(),
                };
                let (since, lasting) = since(info.fence);
                let more = if info.holders > 1 {
                    let others = info.holders.saturating_sub(1);
                    format!(" and {others} more")
                } else {
                    String::new()
                };
                let time = if output::is_at_terminal() { lasting } else { since };
                let held =
                    if names.len() > 1 { format!(" {}", printable(name)) } else { String::new() };
                let holder = printable(&info.holder);
                let text =
                    format!("waiting for {wanted}:{held} held by {holder}{more}{time}{waiting}");
                let (name, holder, fence) = (name.clone(), info.holder, info.fence);
                return (State::Held { name, holder, fence, before }, text);
            }
            // The request for the lock reports the refusal, if it is refused as well.
            Err(error) if !is_silence(&error) => {}
            Err(error) => {
                let silent = crate::story::silence();
                let why = silent.unwrap_or_else(|| format!("{}: {error}", place.name));
                let text = format!("waiting for {wanted}: no answer from {}", printable(&why));
                return (State::Silent, text);
            }
        }
    }
    (State::Free, format!("waiting for {wanted}"))
}

/// Returns the holder and the queue of the same grant. The grant may end between the two commands, so asks again.
async fn holder_and_queue(
    place: &Place,
    name: &str,
) -> Result<Option<(LockInfo, Vec<Waiter>)>, Error> {
    let mut info = place.locks.info(name).await?;
    for _ in 0..MOST_LOOKS {
        let Some(asked) = info else { return Ok(None) };
        // Without the right to see the queue, the user is told nothing of it.
        let queue = place.locks.waiters(name).await.unwrap_or_default();
        info = place.locks.info(name).await?;
        if info.as_ref().is_some_and(|still| still.fence == asked.fence) {
            return Ok(Some((asked, queue)));
        }
    }
    Ok(info.map(|info| (info, Vec::new())))
}

/// The fence of a grant is about its time in microseconds. On a server that has just started, the fence is ahead of
/// the clock. Then the time is left out.
fn since(fence: Fence) -> (String, String) {
    if fence == Fence::default() {
        return (String::new(), String::new());
    }
    let (granted, now) =
        (Duration::from_micros(fence.into()), SystemTime::now().duration_since(UNIX_EPOCH));
    let Some(lasting) = now.unwrap_or_default().checked_sub(granted) else {
        return (String::new(), String::new());
    };
    let part = |length: u64, of: u64| {
        granted.as_secs().checked_div(length).and_then(|n| n.checked_rem(of)).unwrap_or_default()
    };
    let since = format!(" since {:02}:{:02}:{:02} UTC", part(3_600, 24), part(60, 60), part(1, 60));
    (since, format!(" for {}", show(lasting)))
}
