//! Waiting by a ticket: a place in the server's queue without a connection that waits.
//!
//! ```text
//!   connection for requests   ACQUIRE … TICKET     ACQUIRE … TICKET          ACQUIRE … TICKET
//!                             nil                  nil: a slice later        the fence
//!   subscription                                                     granted ┘
//! ```
//!
//! Asking again keeps the place, and is the truth: what the subscription tells may be lost. Nobody asks more often than
//! once a slice unless there is a reason, and the more tickets there are, the less often each is asked for.
//!
//! Whoever drops this half-way leaves in `asked_on` on which connection it asked.

use crate::Error;
use crate::backoff::{RETRY, ROOM};
use crate::clock::Moment;
use crate::dialect::{Dialect, Question};
use crate::link::{Link, Sent};
use crate::measure;
use crate::node::{Node, within};
use crate::poison::locked;
use crate::queue::Waited;
use crate::room;
use crate::share::Share;
use crate::stray::Stray;
use crate::subscription::{Seat, Told};
use crate::validity::later;
use crate::verdict::{Verdict, verdict};
use crate::wire::{Failure, Limits, Try, Wire};
use redis::RedisError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How many times a place is kept for as long as nobody asks for it.
const KEPT_TIMES: u32 = 3;

/// It is kept for so long at least: a slice may be short.
const KEPT_LEAST: Duration = Duration::from_secs(1);

/// How many times as long as an answer may take one waits for those who ask before.
const LONGEST_TURN: u32 = 4;

/// How long a server has to say that a ticket is given up.
const LEAVING: Duration = Duration::from_secs(1);

/// The requests of a client that wait by tickets.
#[derive(Default)]
pub(crate) struct Crowd {
    waiting: AtomicUsize,
    /// Somebody else had the last lock that was asked for.
    is_contended: AtomicBool,
}

pub(crate) struct Tickets<'a> {
    pub(crate) wire: &'a Wire,
    pub(crate) crowd: &'a Crowd,
    pub(crate) key: &'a str,
    /// The keys of other locks that are to be had with it.
    pub(crate) also: &'a [String],
    pub(crate) owner: &'a str,
    pub(crate) share: Share,
    pub(crate) ttl: Duration,
    pub(crate) grace: Option<Duration>,
    pub(crate) slice: Duration,
    /// For each request.
    pub(crate) each: Duration,
    /// The end of the caller's patience.
    pub(crate) until: Option<Instant>,
    /// For how long the server may be silent.
    pub(crate) unreachable_after: Duration,
    /// Whether the owner may come back.
    pub(crate) is_chosen: bool,
    pub(crate) asked_on: &'a Mutex<Option<AskedOn>>,
    pub(crate) stray: &'a Stray,
}

/// Where a place in the queue was asked for.
#[derive(Clone)]
pub(crate) struct AskedOn {
    link: Link,
    /// The last request there has not been answered.
    is_open: bool,
    /// One on an earlier connection was not, and may be carried out whenever it arrives.
    is_any_lost: bool,
}

/// What asking for a place came to.
enum Asked {
    Granted {
        fence: u64,
        asked: Moment,
        ended: CancellationToken,
    },
    Queued {
        /// None where nobody tells of grants at the moment.
        seat: Option<Seat>,
        kept: Duration,
    },
    /// The server has no place at the moment, or says so of a queue.
    NotNow(RedisError),
    /// It keeps no queue.
    NoQueue,
    /// It gives no tickets to this user.
    NoTickets,
}

/// Why a place is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// There is none yet, or it is to be kept: others come first.
    Place,
    /// It was granted.
    Claim,
}

/// What a server says that gives no tickets, or none for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Tickets,
    /// It does not know an option: an older module.
    Option,
    LongerThan(Duration),
}

impl Tickets<'_> {
    pub(crate) async fn wait(&self) -> Result<Waited, Error> {
        let _waiting = self.crowd.enter();
        let (mut seat, mut reason, mut tries, mut last) = (None, Reason::Place, 0_u32, None);
        let mut has_waited = false;
        loop {
            let now = Instant::now();
            if self.until.is_some_and(|until| now >= until) {
                let left = Box::pin(self.leave()).await;
                return last.map_or(Ok(left), Err);
            }
            let trying = later(now, self.unreachable_after);
            let trying = self.until.map_or(trying, |until| until.min(trying));
            // In a box, which is gone while it waits for a reason to ask.
            let asked = Box::pin(self.ask(seat.take(), reason, trying)).await?;
            (reason, last) = (Reason::Place, None);
            let rest = match asked {
                Asked::Granted { fence, asked, ended } => {
                    self.crowd.note(has_waited);
                    return Ok(Waited::Granted { fence, asked, ended: Some(ended) });
                }
                Asked::NoQueue => return Ok(Waited::NoQueue),
                Asked::NoTickets => return Ok(Waited::NoTickets),
                Asked::Queued { seat: Some(told), kept } => {
                    (tries, has_waited) = (0, true);
                    reason = self.told(&told, kept).await;
                    seat = Some(told);
                    continue;
                }
                Asked::Queued { seat: None, .. } => self.crowd.rest(ROOM.random_rest(tries)),
                Asked::NotNow(error) if error.code() == Some("QUEUEFULL") => {
                    last = Some(Error::refused(&error));
                    self.crowd.rest(ROOM.random_rest(tries))
                }
                Asked::NotNow(error) => {
                    last = Some(Error::unreachable(&error));
                    self.crowd.rest(RETRY.random_rest(tries))
                }
            };
            tries = tries.saturating_add(1);
            self.sleep(rest).await;
        }
    }

    /// Waits for a reason to ask again.
    async fn told(&self, seat: &Seat, kept: Duration) -> Reason {
        let until = later(Instant::now(), rest(kept, fastrand::f64()));
        let until = self.until.map_or(until, |end| end.min(until));
        tokio::select! {
            biased;
            told = seat.told() => match told {
                Told::Granted => Reason::Claim,
                Told::Closed => {
                    // What was told meanwhile is lost: so all ask, and not all at once.
                    self.sleep(self.crowd.spread().mul_f64(fastrand::f64())).await;
                    Reason::Place
                }
            },
            () = sleep_until(until.into()) => {
                Box::pin(seat.subscription.check(self.slice, self.each)).await;
                Reason::Place
            }
        }
    }

    /// No longer than patience lasts.
    async fn sleep(&self, rest: Duration) {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        sleep(left.map_or(rest, |left| rest.min(left))).await;
    }

    async fn ask(
        &self,
        seat: Option<Seat>,
        reason: Reason,
        trying: Instant,
    ) -> Result<Asked, Error> {
        let (seat, limits) = (Mutex::new(seat), Limits { each: self.each, until: Some(trying) });
        self.wire.try_on(limits, |this| self.ask_once(&seat, reason, trying, this)).await
    }

    async fn ask_once(
        &self,
        seat: &Mutex<Option<Seat>>,
        reason: Reason,
        trying: Instant,
        this: Try,
    ) -> Result<Asked, Failure> {
        let sent = this.sent();
        let node = self.wire.node(self.key, self.each, this.redirected).await?;
        let link = self.wire.shared(&node, self.each).await?;
        if link.server.dialect() == Dialect::Plain {
            return Ok(Asked::NoQueue);
        }
        if link.tickets.are_refused() {
            return Ok(Asked::NoTickets);
        }
        let known = locked(seat).take();
        let Ok(seat) = self.seat(&node, &link, known, trying).await else {
            link.tickets.refuse();
            return Ok(Asked::NoTickets);
        };
        let subscription = seat.as_ref().map(|seat| Arc::clone(&seat.subscription));
        let kept = self.kept().min(link.tickets.longest());
        let turn = match (&subscription, reason) {
            (Some(subscription), Reason::Place) => {
                let left = trying.saturating_duration_since(Instant::now());
                let longest = self.each.saturating_mul(LONGEST_TURN);
                let turn = within(left.min(longest), subscription.turn()).await;
                if turn.is_err() && Instant::now() >= trying {
                    // Patience has ended, or it asks later.
                    return Ok(Asked::Queued { seat, kept });
                }
                // Those whose turn it is may not be driven: whoever is waits no longer than this for answers.
                turn.ok()
            }
            _ => None,
        };
        let channel = subscription.as_ref().map(|subscription| subscription.channel.as_str());
        let Self { owner, also, share, ttl, grace, .. } = *self;
        let question = Question::Ticket { owner, share, ttl, grace, kept, channel, also };
        let asked = Moment::now();
        self.sending(&link);
        let answer = within(self.each, link.ask(self.key, question, sent)).await;
        drop(turn);
        let is_heard = answer.as_ref().err().is_none_or(|error| verdict(error) != Verdict::Broken);
        if is_heard {
            self.answered();
        }
        let error = match answer {
            Ok(fence) => {
                self.wire.answered(&node);
                return Ok(match fence {
                    Some(fence) => Asked::Granted { fence, asked, ended: link.ended() },
                    None => Asked::Queued { seat, kept },
                });
            }
            Err(error) => error,
        };
        match refusal(&error) {
            Some(refusal @ (Refusal::Tickets | Refusal::Option))
                // What an older module does not know may be the option for several locks, too.
                if refusal == Refusal::Tickets || self.also.is_empty() =>
            {
                link.tickets.refuse();
                return Ok(Asked::NoTickets);
            }
            Some(Refusal::LongerThan(longest)) if longest < kept => {
                link.tickets.limit(longest);
                return Ok(Asked::NotNow(error));
            }
            _ => {}
        }
        let is_later = matches!(error.code(), Some("QUEUEFULL" | "TRYAGAIN" | "BUSY"));
        // The lock may be elsewhere by now.
        let failure = self.wire.failed(error, Some((&node, Some(&link))));
        if is_later { Ok(Asked::NotNow(failure.error)) } else { Err(failure) }
    }

    /// Where this ticket is told of: nowhere, if no connection can be opened for that. An error is a refusal.
    async fn seat(
        &self,
        node: &Arc<Node>,
        link: &Link,
        known: Option<Seat>,
        trying: Instant,
    ) -> Result<Option<Seat>, ()> {
        // There has to be time to ask.
        let left = self.each.min(trying.saturating_duration_since(Instant::now()));
        let opening = within(left.mul_f64(0.5), node.subscription(self.each));
        let error = match opening.await {
            Ok(subscription) => {
                link.tickets.heard();
                return Ok(Some(match known {
                    Some(known) if Arc::ptr_eq(&known.subscription, &subscription) => known,
                    _ => subscription.seat(self.owner, self.key),
                }));
            }
            Err(error) => error,
        };
        match verdict(&error) {
            Verdict::Broken => {
                link.tickets.not_heard();
                Ok(None)
            }
            Verdict::Crowded | Verdict::Again | Verdict::Elsewhere => Ok(None),
            _ => Err(()),
        }
    }

    /// How long a place is kept for which nobody asks.
    fn kept(&self) -> Duration {
        self.slice.max(self.crowd.each_asks_after()).saturating_mul(KEPT_TIMES).max(KEPT_LEAST)
    }

    /// Gives the place up, and with it what it was granted a moment ago.
    async fn leave(&self) -> Waited {
        let Some(asked_on) = locked(self.asked_on).clone() else { return Waited::Over };
        let Self { wire, key, owner, share, .. } = *self;
        let leaving = async {
            if self.is_chosen {
                let limits = Limits { each: self.each, until: Some(Instant::now()) };
                // What it was granted is released by its fence: the keeper does that.
                leave_queue(wire, key, owner, share, limits)
                    .await
                    .is_ok_and(|fence| fence.is_none())
            } else {
                let release = Question::ReleaseAny { owner, also: self.also };
                asked_on.release(key, release, self.each).await
            }
        };
        match timeout(LEAVING, leaving).await {
            Ok(true) => Waited::Over,
            _ => Waited::Unanswered,
        }
    }

    fn sending(&self, link: &Link) {
        self.stray.sending();
        let mut asked_on = locked(self.asked_on);
        let lost = asked_on.as_ref().filter(|before| before.is_open && before.link.id != link.id);
        lost.iter().for_each(|before| self.stray.note(&before.link));
        let is_any_lost =
            lost.is_some() || asked_on.as_ref().is_some_and(|before| before.is_any_lost);
        *asked_on = Some(AskedOn { link: link.clone(), is_open: true, is_any_lost });
    }

    fn answered(&self) {
        if let Some(asked_on) = &mut *locked(self.asked_on) {
            asked_on.is_open = false;
        }
    }
}

impl AskedOn {
    /// Gives up a ticket of an owner that does not come back, and whatever it was granted. Whether nothing can come after
    /// that: the request is behind those for the place, on the same connection.
    pub(crate) async fn release(&self, key: &str, release: Question<'_>, limit: Duration) -> bool {
        let asked = self.link.ask(key, release, Sent::ByItself);
        within(limit, asked).await.is_ok() && !self.is_any_lost
    }
}

/// Gives up a ticket of an owner that may come back: it is asked for once more, for the shortest time there is. A release
/// that came late could release what the owner was granted later; this one only ends a place. The answer is a fence if
/// it was granted.
pub(crate) async fn leave_queue(
    wire: &Wire,
    key: &str,
    owner: &str,
    share: Share,
    limits: Limits,
) -> Result<Option<u64>, Error> {
    let (ttl, kept) = (Duration::from_millis(1), Duration::from_millis(1));
    let question =
        Question::Ticket { owner, share, ttl, grace: None, kept, channel: None, also: &[] };
    Ok(wire.ask(key, question, limits).await?.number)
}

/// When a place is to be asked for again that is kept for so long: `chance` is from 0 to 1.
fn rest(kept: Duration, chance: f64) -> Duration {
    let third = kept.checked_div(KEPT_TIMES).unwrap_or_default();
    third.mul_f64(1.0 - chance.clamp(0.0, 1.0) / 4.0)
}

fn refusal(error: &RedisError) -> Option<Refusal> {
    let detail = error.detail()?;
    let begins = |with: &str| detail.starts_with(with);
    match error.code()? {
        "NOPERM" if detail.contains("channel") => Some(Refusal::Tickets),
        // An older server.
        "ERR" if begins("NOTIFY is not possible") => Some(Refusal::Tickets),
        "ERR" if begins("unknown option") => Some(Refusal::Option),
        "ERR" => {
            let limit = detail.strip_prefix("TICKET must be an integer from 1 to ")?;
            let millis = limit.split(' ').next()?.parse().ok()?;
            Some(Refusal::LongerThan(Duration::from_millis(millis)))
        }
        _ => None,
    }
}

/// One that waits, until this is dropped.
struct Waiting<'c>(&'c Crowd);

impl Crowd {
    fn enter(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Relaxed);
        measure::one_more_ticket();
        Waiting(self)
    }

    /// Whether a lock was taken.
    pub(crate) fn note(&self, is_contended: bool) {
        self.is_contended.store(is_contended, Relaxed);
    }

    /// Whether the next one probably is, too: then it is no use to try before a place is asked for.
    pub(crate) fn expects_to_wait(&self) -> bool {
        self.is_contended.load(Relaxed)
    }

    /// How often each may ask so that all of them together ask a thousand times a second.
    fn each_asks_after(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.waiting.load(Relaxed)).unwrap_or(u64::MAX))
    }

    /// Within what time all of them may ask.
    fn spread(&self) -> Duration {
        room::spread(u32::try_from(self.waiting.load(Relaxed)).unwrap_or(u32::MAX))
    }

    /// This long, or longer where many wait.
    fn rest(&self, rest: Duration) -> Duration {
        rest.max(self.each_asks_after().mul_f64(0.5 + fastrand::f64()))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
        measure::one_less_ticket();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::make_extension_error;

    #[test]
    fn a_place_is_asked_for_three_times_before_it_is_given_up() {
        let kept = Duration::from_secs(15);
        assert_eq!(rest(kept, 0.0), Duration::from_secs(5));
        assert_eq!(rest(kept, 1.0), Duration::from_millis(3_750));
    }

    #[test]
    fn a_crowd_asks_a_thousand_times_a_second() {
        let crowd = Crowd::default();
        let many: Vec<_> = (0..10_000).map(|_| crowd.enter()).collect();
        assert_eq!(crowd.each_asks_after(), Duration::from_secs(10));
        assert_eq!(crowd.spread(), Duration::from_secs(5));
        assert!(crowd.rest(Duration::ZERO) >= Duration::from_secs(5));
        drop(many);
        assert_eq!(crowd.each_asks_after(), Duration::ZERO);
    }

    #[test]
    fn what_a_server_says_that_gives_no_tickets_is_known() {
        let said = |code: &str, detail: &str| {
            refusal(&make_extension_error(code.to_owned(), Some(detail.to_owned())))
        };
        let channel = "this user has no permissions to access the channel given to NOTIFY";
        assert_eq!(said("NOPERM", channel), Some(Refusal::Tickets));
        assert_eq!(said("NOPERM", "this user has no permissions to access the key"), None);
        let older = "unknown option, expected SHARE holders or BLOCK milliseconds";
        assert_eq!(said("ERR", older), Some(Refusal::Option));
        let server = "NOTIFY is not possible on this server, which does not tell modules";
        assert_eq!(said("ERR", server), Some(Refusal::Tickets));
        let longest =
            "TICKET must be an integer from 1 to 5000 (milliseconds, config leasehold.max-ttl)";
        let limit = Refusal::LongerThan(Duration::from_millis(5_000));
        assert_eq!(said("ERR", longest), Some(limit));
        assert_eq!(said("ERR", "ttl must be at most 5000 milliseconds"), None);
    }
}
