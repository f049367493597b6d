//! The subscription to the grants of one server: on the line if possible, or on a connection beside it. On the line, a
//! message comes with answers to requests, which saves a read on both sides.

use super::places::Places;
use crate::backoff::RETRY;
use crate::clock::{Moment, within};
use crate::error::unanswered;
use crate::link::{Line, Node};
use crate::locked::locked;
use futures_util::StreamExt;
use redis::RedisError;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// The time to subscribe, longer than any reachable server needs.
const OPENS_WITHIN: Duration = Duration::from_secs(5);

pub(super) struct Subscription {
    begun: Moment,
    state: watch::Sender<State>,
    task: Mutex<Option<AbortHandle>>,
}

#[derive(Clone, Debug)]
enum State {
    Opening,
    Up,
    Lost(RedisError),
}

impl Subscription {
    pub(super) fn open(places: &Arc<Places>, node: &Arc<Node>, line: Option<Line>) -> Arc<Self> {
        let (state, _) = watch::channel(State::Opening);
        let this = Arc::new(Self { begun: Moment::now(), state, task: Mutex::default() });
        let (subscription, node) = (Arc::clone(&this), Arc::clone(node));
        let (channel, failures) = (places.channel.clone(), places.failures());
        let places = Arc::downgrade(places);
        let task = tokio::spawn(async move {
            // Pause, because waiters would reopen it at once while the server is down.
            if failures > 0 {
                sleep(RETRY.random_rest(failures)).await;
            }
            let hear = {
                let (places, node) = (Weak::clone(&places), Arc::downgrade(&node));
                move |message: &[u8]| {
                    let (Some(places), Some(node)) = (places.upgrade(), node.upgrade()) else {
                        return;
                    };
                    // After a reconnection the line may lead to another server, so ignore messages of the former one.
                    if let (Some((fence, owner, key)), false) =
                        (grant_in(message), node.gone.is_cancelled())
                    {
                        places.hear(owner, key, fence, node.id);
                    }
                }
            };
            let opening = async {
                if let Some(mut line) = line
                    && line.subscribe(&channel, Box::new(hear.clone())).await?
                {
                    return Ok(None);
                }
                node.subscribe(channel.as_bytes()).await.map(Some)
            };
            let opened = within(OPENS_WITHIN, opening).await;
            let lost = match opened.unwrap_or_else(|| Err(unanswered())) {
                Err(error) => {
                    places.upgrade().inspect(|places| places.count_failure());
                    error
                }
                Ok(opened) => {
                    places.upgrade().inspect(|places| places.forget_failures());
                    subscription.state.send_replace(State::Up);
                    let heard = async {
                        let Some(beside) = opened else { return std::future::pending().await };
                        let mut messages = beside.into_on_message();
                        while let Some(message) = messages.next().await {
                            hear(message.get_payload_bytes());
                        }
                    };
                    node.gone.run_until_cancelled(heard).await;
                    unanswered()
                }
            };
            subscription.state.send_replace(State::Lost(lost));
            if let Some(places) = places.upgrade() {
                places.cut(node.id);
            }
        });
        *locked(&this.task) = Some(task.abort_handle());
        this
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Up)
    }

    /// Waits until it is open. Later callers do not wait anew for a silent server.
    pub(super) async fn opened(&self, limit: Duration) -> Result<bool, RedisError> {
        let left = limit.saturating_sub(Moment::now().since(self.begun));
        let mut state = self.state.subscribe();
        let opened = within(left, state.wait_for(|state| !matches!(state, State::Opening))).await;
        match opened.map(|opened| opened.map(|state| state.clone())) {
            Some(Ok(State::Up)) => Ok(true),
            Some(Ok(State::Lost(error))) => Err(error),
            _ => Ok(false),
        }
    }

    pub(super) fn close(&self) {
        if let Some(task) = locked(&self.task).take() {
            task.abort();
        }
    }
}

/// `<fence> <length of owner> <owner> <key>`
fn grant_in(message: &[u8]) -> Option<(u64, &str, &[u8])> {
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse().ok();
    let mut words = message.splitn(3, |byte| *byte == b' ');
    let (fence, length, rest) = (number(words.next()?)?, number(words.next()?)?, words.next()?);
    let (owner, rest) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    let owner = std::str::from_utf8(owner).ok().filter(|owner| !owner.is_empty())?;
    Some((fence, owner, rest.strip_prefix(b" ")?))
}

#[cfg(test)]
mod tests {
    use super::grant_in;

    #[test]
    fn a_message_tells_a_fence_an_owner_and_a_lock() {
        assert_eq!(grant_in(b"17 2 me a key"), Some((17, "me", b"a key".as_slice())));
        assert_eq!(grant_in(b"17 4 m e  a"), Some((17, "m e ", b"a".as_slice())));
        for wrong in [
            b"".as_slice(),
            b"17",
            b"17 2",
            b"17 2 me",
            b"17 9 me",
            b"x 2 me",
            b"17 0  a",
            b"-1 2 me a",
        ] {
            assert_eq!(grant_in(wrong), None, "{wrong:?}");
        }
    }
}
