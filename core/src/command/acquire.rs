//! `LOCK.ACQUIRE key owner ttl [SHARE n] [BLOCK ms | TICKET ms [NOTIFY channel]] [EPHEMERAL grace] [ALSO numkeys key
//! [key ...]]`: acquires one lock or several, now or as soon as they can be granted.

use super::{Access, Also, Arg, Decide, Error, MayWait, Reply, Spec, args};
use crate::lock::{
    self, Decision, FenceClock, Grace, Holders, Limits, Moment, Owner, Share, Standing, Ticket,
    Ttl, Wait, Wanted,
};

pub static SPEC: Spec = Spec {
    name: c"lock.acquire",
    summary: c"Acquires a lock, or waits for it, and returns the fence of the grant.",
    complexity: c"O(N) with N holders of the lock; O(1) for one; O(log(M)) for one of M waiters with limited patience",
    since: c"0.1.0",
    history: &[(c"0.2.0", c"Added the options SHARE, TICKET, NOTIFY, EPHEMERAL and ALSO.")],
    tips: Some(Spec::NONDETERMINISTIC),
    access: Access::Insert,
    args: &[
        Arg::KEY,
        Arg::OWNER,
        Arg::TTL,
        Arg::SHARE,
        Arg::BLOCK_OR_TICKET,
        Arg::EPHEMERAL,
        Arg::ALSO,
    ],
};

/// The owner that asks for a minted owner.
const MINT: &[u8] = b"*";

/// The length of a UUID as text, hyphens included.
pub type MintedOwner = [u8; 36];

#[derive(Debug)]
pub struct Request<'a> {
    owner: Asked<'a>,
    ttl: Ttl,
    share: Share,
    max_holders: usize,
    wait: Option<Wait<'a>>,
    grace: Option<Grace>,
    also: Option<Box<Also<'a>>>,
}

/// What follows the ttl, as the client sent it.
#[derive(Default)]
struct Options<'a> {
    share: Option<&'a [u8]>,
    patience: Option<&'a [u8]>,
    ticket: Option<&'a [u8]>,
    channel: Option<&'a [u8]>,
    grace: Option<&'a [u8]>,
    also: Option<Also<'a>>,
}

impl<'a> Options<'a> {
    /// Parses the options from this word on.
    fn parse(words: &[&'a [u8]], mut at: usize) -> Result<Self, Error> {
        let mut options = Self::default();
        while let Some(&word) = words.get(at) {
            if Also::is_begun_by(word) && options.also.is_none() {
                let (also, next) = Also::parse(words, at)?;
                (options.also, at) = (Some(also), next);
                continue;
            }
            let value = words.get(at.saturating_add(1)).ok_or(Error::UnknownOption)?;
            let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
            let place = match word.first() {
                Some(b'S' | b's') if is(b"SHARE") => &mut options.share,
                Some(b'B' | b'b') if is(b"BLOCK") => &mut options.patience,
                Some(b'T' | b't') if is(b"TICKET") => &mut options.ticket,
                Some(b'N' | b'n') if is(b"NOTIFY") => &mut options.channel,
                Some(b'E' | b'e') if is(b"EPHEMERAL") => &mut options.grace,
                _ => return Err(Error::UnknownOption),
            };
            if place.replace(value).is_some() {
                return Err(Error::UnknownOption);
            }
            at = at.saturating_add(2);
        }
        Ok(options)
    }

    fn share(&self) -> Result<Share, Error> {
        self.share.map_or(Ok(Share::EXCLUSIVE), args::share)
    }

    fn wait(&self, limits: &Limits) -> Result<Option<Wait<'a>>, Error> {
        let channel = self.channel.map(args::channel).transpose();
        match (self.patience, self.ticket) {
            (Some(_), Some(_)) => Err(Error::BlockWithTicket),
            (_, None) if self.channel.is_some() => Err(Error::NotifyWithoutTicket),
            (None, None) => Ok(None),
            (Some(patience), None) => Ok(Some(Wait::Block(args::patience(patience)?))),
            (None, Some(lasts)) => {
                let lasts = args::ticket(lasts, limits)?;
                Ok(Some(Wait::Ticket(Ticket { lasts, channel: channel? })))
            }
        }
    }

    fn grace(&self) -> Result<Option<Grace>, Error> {
        self.grace.map(args::grace).transpose()
    }
}

#[derive(Debug)]
enum Asked<'a> {
    Named(Owner<'a>),
    Minted(MintedOwner),
}

impl<'a> Request<'a> {
    pub fn parse(
        words: &[&'a [u8]],
        limits: &Limits,
        mint: impl FnOnce() -> MintedOwner,
    ) -> Result<Self, Error> {
        let &[_, key, owner, ttl, ref options @ ..] = words else { return Err(Error::WrongArity) };
        let owner =
            if owner == MINT { Asked::Minted(mint()) } else { Asked::Named(args::owner(owner)?) };
        let ttl = args::ttl(ttl, limits)?;
        let max_holders = limits.max_holders;
        let [_, ..] = options else {
            let share = Share::EXCLUSIVE;
            return Ok(Self {
                owner,
                ttl,
                share,
                max_holders,
                wait: None,
                grace: None,
                also: None,
            });
        };
        let options = Options::parse(words, 4)?;
        let (share, wait, grace) = (options.share()?, options.wait(limits)?, options.grace()?);
        let also = options.also.iter().flat_map(|also| also.keys.iter().copied());
        if wait.is_some()
            && std::iter::once(key).chain(also).any(|key| key.len() > args::LONGEST_KEY_TO_WAIT_FOR)
        {
            return Err(Error::KeyTooLongToWait);
        }
        Ok(Self { owner, ttl, share, max_holders, wait, grace, also: options.also.map(Box::new) })
    }

    pub fn also(&self) -> Option<&Also<'a>> {
        self.also.as_deref()
    }

    /// The channel on which the grant is published.
    pub fn channel(&self) -> Option<&'a [u8]> {
        match self.wait {
            Some(Wait::Ticket(ticket)) => ticket.channel,
            Some(Wait::Block(_)) | None => None,
        }
    }

    /// What the client is told. `None` if it waits on its connection.
    pub fn reply(&self, decision: &Decision<'_>) -> Result<Option<Reply<'_>>, Error> {
        let fence_number = match decision {
            Decision::Wait(Wait::Block(_)) => return Ok(None),
            Decision::Granted(grant) => Some(grant.fence.number()),
            Decision::Again { fence_number, .. } => Some(*fence_number),
            // A client that did not know its owner could not ask again.
            Decision::Wait(Wait::Ticket(_)) => None,
            _ => return Ok(Some(Reply::Nil)),
        };
        Ok(Some(reply(self.owner()?, self.is_minted(), fence_number)))
    }
}

impl Decide for Request<'_> {
    fn owner(&self) -> Result<Owner<'_>, Error> {
        match &self.owner {
            Asked::Named(owner) => Ok(*owner),
            Asked::Minted(bytes) => args::owner(bytes),
        }
    }

    fn grace(&self) -> Option<Grace> {
        self.grace
    }

    fn stand(&self, holders: &Holders<'_>, others: usize) -> Standing {
        Standing::new(holders, others, self.share, self.max_holders)
    }

    fn decide(
        &self,
        standings: &[Standing],
        now: Moment,
        fences: &mut FenceClock,
    ) -> Result<Decision<'_>, Error> {
        match lock::acquire(standings, &self.wanted()?, now, fences) {
            Decision::NoFenceLeft => Err(Error::NoFenceLeft),
            busy @ Decision::Busy { .. } => Ok(self.wait.map_or(busy, Decision::Wait)),
            decision => Ok(decision),
        }
    }
}

impl MayWait for Request<'_> {
    fn wanted(&self) -> Result<Wanted<'_>, Error> {
        Ok(Wanted { owner: self.owner()?, ttl: self.ttl, share: self.share })
    }

    fn is_minted(&self) -> bool {
        matches!(self.owner, Asked::Minted(_))
    }
}

/// The fence, or nil. A client that does not know its owner gets the owner first.
pub fn reply(owner: Owner<'_>, minted: bool, fence_number: Option<u64>) -> Reply<'_> {
    let fence = match fence_number {
        Some(number) => Reply::number(number),
        None => Reply::Nil,
    };
    if minted { Reply::Array(vec![Reply::Bytes(owner.as_bytes()), fence]) } else { fence }
}

/// The message published at the grant to a ticket. The length precedes the owner, because owners and keys may contain
/// spaces.
pub fn notice(fence_number: u64, owner: Owner<'_>, key: &[u8]) -> Vec<u8> {
    let owner = owner.as_bytes();
    let head = format!("{fence_number} {} ", owner.len());
    [head.as_bytes(), owner, b" ", key].concat()
}

#[cfg(test)]
mod tests;
