//! A lock that stays held after its guard, for another guard to adopt.

use crate::error::Error;
use crate::lease::Lease;
use crate::outcome::Fence;
use std::fmt;
use std::str::FromStr;

const SCHEME: &str = "leasehold";

/// A lock that stays held without a guard: [`Guard::detach`](crate::Guard::detach) returns it, and
/// [`Locks::adopt`](crate::Locks::adopt) takes it.
///
/// Its text fits into the payload of a job: `leasehold:<lock>:<owner>:<fence>`. Each byte that is not a letter, a digit or
/// one of `-._~` is written as `%` and two hexadecimal digits. Commas separate several locks.
///
/// ```
/// use leasehold_client::Detached;
///
/// let detached: Detached = "leasehold:order%3A7:worker-1:1763942400000000".parse()?;
/// assert_eq!(detached.owner(), "worker-1");
/// assert_eq!(detached.to_string(), "leasehold:order%3A7:worker-1:1763942400000000");
/// # Ok::<(), leasehold_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Detached {
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) owner: String,
    pub(crate) fence: Fence,
}

impl Detached {
    pub(crate) fn of(lease: &Lease) -> Self {
        Self {
            keys: lease.claim.keys.clone(),
            owner: lease.claim.owner.to_string(),
            fence: lease.fence(),
        }
    }

    /// The owner that holds the lock.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// The fence of the grant.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence
    }
}

impl fmt::Display for Detached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys: Vec<_> = self.keys.iter().map(|key| escaped(key)).collect();
        write!(f, "{SCHEME}:{}:{}:{}", keys.join(","), escaped(self.owner.as_bytes()), self.fence)
    }
}

impl FromStr for Detached {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = || Error::setting("detached", "it must be leasehold:<lock>:<owner>:<fence>");
        let mut parts = text.split(':');
        let (scheme, keys, owner, fence) = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(SCHEME), Some(keys), Some(owner), Some(fence), None) =
            (scheme, keys, owner, fence, parts.next())
        else {
            return Err(wrong());
        };
        let keys: Option<Vec<_>> = keys.split(',').map(unescaped).collect();
        let owner = unescaped(owner)
            .and_then(|owner| String::from_utf8(owner).ok())
            .filter(|owner| !owner.is_empty());
        let fence = fence.parse().map_err(|_| wrong())?;
        Ok(Self {
            keys: keys.ok_or_else(wrong)?,
            owner: owner.ok_or_else(wrong)?,
            fence: Fence::new(fence),
        })
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digits = std::str::from_utf8(after.get(..2)?).ok()?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = after.get(2..)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_text_reads_as_itself() {
        let keys = vec![b"a:b,c %".to_vec(), vec![0, 255]];
        let detached = Detached { keys, owner: "w\u{e4}hler:1".into(), fence: Fence::new(17) };
        assert_eq!(detached.to_string(), "leasehold:a%3Ab%2Cc%20%25,%00%FF:w%C3%A4hler%3A1:17");
        assert_eq!(detached.to_string().parse::<Detached>().unwrap(), detached);
        for wrong in [
            "",
            "leasehold:a:b",
            "leasehold:a::1",
            "other:a:b:1",
            "leasehold:a%:b:1",
            "leasehold:a:b:x",
            "leasehold:a:b:1:2",
        ] {
            assert!(wrong.parse::<Detached>().is_err(), "{wrong}");
        }
    }
}
