//! What the tools do, and the holds of one session.
//!
//! Each grant has an owner of its own, which the caller never sees: it names a hold by the lock and the fence. So a caller
//! cannot act as another one, and callers that share a session exclude each other.

use super::tools::{Acquire, Info, Release, Renew, Wait};
use crate::commands::holding::new_owner;
use crate::commands::wait::until_free;
use crate::connecting::Place;
use crate::duration::show;
use crate::output::printable;
use leasehold_client::{Error, Fence, Guard, LockInfo, Loss, Released, Renew as Renewal};
use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::{Instant, timeout};

/// A result, or what went wrong and what to do.
pub(super) type Reply = Result<Value, String>;

pub(super) struct Session {
    pub(super) place: Place,
    holds: Mutex<Vec<Hold>>,
}

struct Hold {
    name: String,
    fence: Fence,
    guard: Shared,
}

/// A guard that one call uses at a time; none once it is released.
type Shared = Arc<tokio::sync::Mutex<Option<Guard>>>;

impl Session {
    pub(super) fn of(place: Place) -> Self {
        Self { place, holds: Mutex::default() }
    }

    pub(super) async fn acquire(
        &self,
        asked: Acquire,
        context: RequestContext<RoleServer>,
    ) -> Reply {
        let (name, begun) = (asked.name.clone(), Instant::now());
        let request = self.place.locks.lock(&name).owner(new_owner()).renew(Renewal::Never);
        let request = request.ttl(asked.ttl()?).wait(asked.patience()?);
        let granted = tokio::select! {
            granted = request => granted,
            () = context.ct.cancelled() => return Err("cancelled".to_owned()),
        };
        match granted {
            Ok(guard) => {
                let lease = lease(&name, &guard, "acquired");
                // If it was cancelled meanwhile, nobody reads the reply, and the guard is dropped.
                let mut holds = self.holds();
                if !context.ct.is_cancelled() {
                    holds.retain(Hold::is_held);
                    let fence = guard.fence();
                    let guard = Arc::new(tokio::sync::Mutex::new(Some(guard)));
                    holds.push(Hold { name, fence, guard });
                }
                Ok(lease)
            }
            Err(Error::Busy { .. }) => {
                // It may still count this request among the waiters, so they are left out.
                let info = self.locked(&name).await?;
                let mut state = self.state(&name, info.as_ref());
                state.insert("acquired".to_owned(), json!(false));
                state.insert("waited_seconds".to_owned(), json!(begun.elapsed().as_secs()));
                Ok(state.into())
            }
            Err(error) => Err(self.failure(error)),
        }
    }

    pub(super) async fn wait(&self, asked: Wait, context: RequestContext<RoleServer>) -> Reply {
        let (name, patience, begun) = (&asked.name, asked.patience()?, Instant::now());
        let mut info = self.locked(name).await?;
        if info.is_some() {
            let waited = tokio::select! {
                waited = timeout(patience, until_free(&self.place, name)) => waited,
                () = context.ct.cancelled() => return Err("cancelled".to_owned()),
            };
            match waited {
                Ok(Ok(_)) => info = None,
                Ok(Err(failure)) => return Err(failure.text),
                Err(_) => info = self.locked(name).await?,
            }
        }
        let mut state = self.state(name, info.as_ref());
        state.insert("waited_seconds".to_owned(), json!(begun.elapsed().as_secs()));
        Ok(state.into())
    }

    pub(super) async fn renew(&self, asked: Renew) -> Reply {
        let (name, ttl) = (&asked.name, asked.ttl()?);
        let shared = self.find(name, asked.fence).ok_or_else(|| not_held(name, asked.fence))?;
        let guard = shared.lock().await;
        let guard = guard.as_ref().ok_or_else(|| not_held(name, asked.fence))?;
        match guard.extend(ttl).await {
            Ok(()) => Ok(lease(name, guard, "renewed")),
            Err(Error::Lost { loss, .. }) => Err(lost(name, loss)),
            Err(error) => {
                let left = show(guard.valid_for());
                Err(format!(
                    "{} The lease of {} still ends in {left}.",
                    self.failure(error),
                    printable(name)
                ))
            }
        }
    }

    pub(super) async fn release(&self, asked: Release) -> Reply {
        let name = &asked.name;
        let shared = self.take(name, asked.fence);
        let guard = match shared {
            Some(shared) => shared.lock().await.take(),
            None => None,
        };
        let guard = guard.ok_or_else(|| not_held(name, asked.fence))?;
        let left = guard.valid_for();
        let before = guard.loss();
        match guard.release().await {
            Ok(Released::InTime | Released::Later) if before.is_none() => {
                Ok(json!({"released": true, "name": name, "fence": asked.fence}))
            }
            Ok(_) => Err(lost(name, before.unwrap_or(Loss::Expired))),
            Err(error) => Err(format!(
                "{} {} is free when its lease ends, in {}.",
                self.failure(error),
                printable(name),
                show(left)
            )),
        }
    }

    pub(super) async fn info(&self, asked: Info) -> Reply {
        let info = self.locked(&asked.name).await?;
        let mut state = self.state(&asked.name, info.as_ref());
        state.insert("waiting".to_owned(), json!(info.and_then(|info| info.waiters)));
        Ok(state.into())
    }

    async fn locked(&self, name: &str) -> Result<Option<LockInfo>, String> {
        self.place.locks.info(name).await.map_err(|error| self.failure(error))
    }

    fn state(&self, name: &str, info: Option<&LockInfo>) -> JsonObject {
        let held_by = info.map(|info| {
            let fence = u64::from(info.fence);
            json!({
                // The value of a key that Leasehold did not write may be anything.
                "owner": (fence > 0).then_some(&info.holder),
                "fence": fence,
                "seconds_left": info.ttl.map(|left| left.as_secs()),
                "is_this_session": self.find(name, fence).is_some(),
            })
        });
        let fields =
            [("name", json!(name)), ("free", json!(info.is_none())), ("held_by", json!(held_by))];
        fields.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
    }

    fn failure(&self, error: Error) -> String {
        self.place.failure(error).text
    }

    fn find(&self, name: &str, fence: u64) -> Option<Shared> {
        let holds = self.holds();
        holds.iter().find(|hold| hold.is(name, fence)).map(|hold| Arc::clone(&hold.guard))
    }

    fn take(&self, name: &str, fence: u64) -> Option<Shared> {
        let mut holds = self.holds();
        let place = holds.iter().position(|hold| hold.is(name, fence))?;
        Some(holds.swap_remove(place).guard)
    }

    fn holds(&self) -> MutexGuard<'_, Vec<Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    fn is(&self, name: &str, fence: u64) -> bool {
        self.name == name && u64::from(self.fence) == fence
    }

    /// A guard that is in use counts as held.
    fn is_held(&self) -> bool {
        let lost = |guard: &Guard| guard.loss().is_some();
        !self.guard.try_lock().is_ok_and(|guard| guard.as_ref().is_none_or(lost))
    }
}

fn lease(name: &str, guard: &Guard, done: &str) -> Value {
    let left = guard.valid_for();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        done: true,
        "name": name,
        "fence": u64::from(guard.fence()),
        "seconds_left": left.as_secs(),
        "deadline": now.saturating_add(left).as_secs(),
    })
}

fn lost(name: &str, loss: Loss) -> String {
    format!(
        "{} was lost before this call: {loss}. Others may have had it since. Stop, check what you changed, and acquire it \
         again to go on.",
        printable(name)
    )
}

fn not_held(name: &str, fence: u64) -> String {
    format!(
        "this session does not hold {} with fence {fence}: it was released, or its lease has ended, and others may have \
         had it since. Stop, check what you changed, and acquire it again to go on.",
        printable(name)
    )
}
