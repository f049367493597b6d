//! A program that uses a client, and what it holds.

use crate::adapter::{Adapter, Event, Pending, Trouble};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A program with one client in it.
pub(crate) struct Program {
    pub(crate) adapter: Arc<Adapter>,
    leases: AtomicU64,
}

/// What a lock is asked for by, from the options of a request.
#[derive(Clone, Debug)]
pub(crate) struct Wanted(Value);

/// A lease, by the name that the driver gave it.
#[derive(Clone)]
pub(crate) struct Lease {
    adapter: Arc<Adapter>,
    id: String,
    pub(crate) fence: u64,
    pub(crate) owner: String,
    /// In milliseconds, as the client counted when it got the lock.
    pub(crate) valid_for: u64,
}

/// A request for a lock that is under way.
pub(crate) struct Waiting {
    id: String,
    adapter: Arc<Adapter>,
    pub(crate) pending: Pending,
}

/// What a client says of a lease without asking anybody.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) valid_for: u64,
    /// Why it is lost, if it is.
    pub(crate) loss: Option<String>,
}

/// A lock of this name, for a minute, renewed.
pub(crate) fn lock(name: &str) -> Wanted {
    Wanted(json!({ "name": name }))
}

/// A lock whose name is these bytes.
pub(crate) fn lock_of_bytes(name: &[u8]) -> Wanted {
    let hex: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    Wanted(json!({ "name_hex": hex }))
}

fn millis(duration: Duration) -> Value {
    json!(u64::try_from(duration.as_millis()).unwrap())
}

impl Wanted {
    fn with(mut self, option: &str, value: Value) -> Self {
        self.0[option] = value;
        self
    }

    pub(crate) fn ttl(self, ttl: Duration) -> Self {
        self.with("ttl", millis(ttl))
    }

    /// A ttl in milliseconds that need not have a sense.
    pub(crate) fn ttl_as_given(self, ttl: Value) -> Self {
        self.with("ttl", ttl)
    }

    pub(crate) fn wait(self, patience: Duration) -> Self {
        self.with("wait", millis(patience))
    }

    pub(crate) fn wait_as_given(self, patience: Value) -> Self {
        self.with("wait", patience)
    }

    pub(crate) fn not_renewed(self) -> Self {
        self.with("renew", json!(false))
    }

    pub(crate) fn renewed_for(self, limit: Duration) -> Self {
        self.with("renew", millis(limit))
    }

    pub(crate) fn hold_at_least(self, least: Duration) -> Self {
        self.with("hold_at_least", millis(least))
    }

    /// That the request can be ended while it waits.
    pub(crate) fn cancellable(self) -> Self {
        self.with("cancellable", json!(true))
    }

    pub(crate) fn reading(self) -> Self {
        self.with("mode", json!("read"))
    }

    pub(crate) fn writing(self) -> Self {
        self.with("mode", json!("write"))
    }

    /// Together with these.
    pub(crate) fn and(self, names: &[&str]) -> Self {
        self.with("also", json!(names))
    }

    pub(crate) fn owned_by(self, owner: &str) -> Self {
        self.with("owner", json!(owner))
    }

    /// Bound to a connection that it outlives by this.
    pub(crate) fn bound(self, grace: Duration) -> Self {
        self.with("ephemeral", millis(grace))
    }

    pub(crate) fn acknowledged_by(self, replicas: u64, limit: Duration) -> Self {
        self.with("replicas", json!(replicas)).with("replicas_within", millis(limit))
    }

    pub(crate) fn one_of(self, permits: u32) -> Self {
        self.with("mode", json!("semaphore")).with("permits", json!(permits))
    }
}

impl Program {
    /// Opens a client on this place.
    #[track_caller]
    pub(crate) fn open(adapter: Arc<Adapter>, place: &Value) -> Self {
        let program = Self { adapter, leases: AtomicU64::new(1) };
        program.adapter.ask("open", place.clone()).ok();
        program
    }

    fn new_lease(&self) -> String {
        format!("lease-{}", self.leases.fetch_add(1, Relaxed))
    }

    fn begin_as(&self, what: &str, wanted: &Wanted) -> Waiting {
        let id = self.new_lease();
        let request = wanted.clone().with("lease", json!(id));
        let pending = self.adapter.ask(what, request.0);
        Waiting { id, adapter: Arc::clone(&self.adapter), pending }
    }

    /// Asks for a lock, and does not wait for what comes of it.
    pub(crate) fn begin(&self, wanted: &Wanted) -> Waiting {
        self.begin_as("acquire", wanted)
    }

    #[track_caller]
    pub(crate) fn acquire(&self, wanted: &Wanted) -> Lease {
        self.begin(wanted).lease()
    }

    /// Asks for a lock that may be held by others, and does not wait for what comes of it.
    pub(crate) fn begin_to_try(&self, wanted: &Wanted) -> Waiting {
        self.begin_as("try", wanted)
    }

    /// None if others have it.
    #[track_caller]
    pub(crate) fn try_acquire(&self, wanted: &Wanted) -> Option<Lease> {
        self.begin_to_try(wanted).lease_if_held()
    }

    /// The error that a request comes to, and after how long.
    #[track_caller]
    pub(crate) fn fail(&self, wanted: &Wanted) -> (Trouble, Duration) {
        self.begin(wanted).pending.error()
    }

    /// The error of a request that does not wait.
    #[track_caller]
    pub(crate) fn fail_to_try(&self, wanted: &Wanted) -> (Trouble, Duration) {
        self.begin_as("try", wanted).pending.error()
    }

    /// Begins to work under a lock. The work ends when it is told to.
    pub(crate) fn run(&self, wanted: &Wanted) -> Work {
        Work(self.begin_as("run", wanted))
    }

    /// Ends the wait of a request.
    #[track_caller]
    pub(crate) fn cancel(&self, waiting: &Waiting) {
        self.adapter.ask("cancel", json!({ "request": waiting.pending.id() })).ok();
    }

    /// What a request that is about no lease is answered with.
    #[track_caller]
    pub(crate) fn ask(&self, what: &str, request: Value) -> Value {
        self.adapter.ask(what, request).ok()
    }

    /// Goes on with a lock that another program has left held.
    pub(crate) fn adopt(&self, text: &str) -> Waiting {
        self.begin_as("adopt", &Wanted(json!({ "text": text })))
    }

    /// Keeps the program from doing anything for so long. What it then says first of the lease.
    #[track_caller]
    pub(crate) fn block(&self, duration: Duration, lease: &Lease) -> State {
        let request = json!({ "for": millis(duration), "lease": lease.id });
        State::of(&self.adapter.ask("block", request).ok())
    }

    #[track_caller]
    pub(crate) fn info(&self, name: &str) -> Value {
        self.adapter.ask("info", json!({ "name": name })).ok()
    }

    pub(crate) fn begin_campaign(&self, name: &str, candidate: &str, ttl: Duration) -> Waiting {
        let wanted = lock(name).ttl(ttl).with("candidate", json!(candidate));
        self.begin_as("campaign", &wanted)
    }

    /// Who leads, and by which fence.
    #[track_caller]
    pub(crate) fn leader(&self, name: &str) -> Option<(String, u64)> {
        let answer = self.adapter.ask("leader", json!({ "name": name })).ok();
        let candidate = answer["candidate"].as_str()?.to_owned();
        Some((candidate, number(&answer["fence"])))
    }

    pub(crate) fn begin_to_close(&self, limit: Duration) -> Pending {
        self.adapter.ask("close", json!({ "limit": millis(limit) }))
    }

    /// The names of the locks that stay.
    #[track_caller]
    pub(crate) fn close(&self, limit: Duration) -> Vec<String> {
        let answer = self.begin_to_close(limit).ok();
        answer["left"]
            .as_array()
            .unwrap()
            .iter()
            .map(|name| name.as_str().unwrap().into())
            .collect()
    }
}

impl Waiting {
    /// None if others have it.
    #[track_caller]
    pub(crate) fn lease_if_held(&self) -> Option<Lease> {
        let answer = self.pending.ok();
        answer["held"].as_bool().unwrap().then(|| self.lease())
    }

    #[track_caller]
    pub(crate) fn lease(&self) -> Lease {
        let answer = self.pending.ok();
        Lease {
            adapter: Arc::clone(&self.adapter),
            id: self.id.clone(),
            fence: number(&answer["fence"]),
            owner: answer["owner"].as_str().unwrap_or_default().into(),
            valid_for: answer["valid_for"].as_u64().unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn error(&self) -> (Trouble, Duration) {
        self.pending.error()
    }
}

/// Work under a lock.
pub(crate) struct Work(pub(crate) Waiting);

impl Work {
    /// The fence under which it works.
    #[track_caller]
    pub(crate) fn begun(&self) -> u64 {
        let event = self.0.adapter.event("working", |event| {
            event["event"] == "working" && event["lease"] == self.0.id.as_str()
        });
        number(&event.value["fence"])
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.0
            .adapter
            .has_told(|event| event["event"] == "working" && event["lease"] == self.0.id.as_str())
    }

    #[track_caller]
    pub(crate) fn ends_with(&self, result: &str) {
        let request = json!({ "lease": self.0.id, "result": result });
        self.0.adapter.ask("finish", request).ok();
    }

    #[track_caller]
    pub(crate) fn fails_with(&self, text: &str) {
        let request = json!({ "lease": self.0.id, "error": text });
        self.0.adapter.ask("finish", request).ok();
    }

    #[track_caller]
    pub(crate) fn lost(&self) -> Event {
        lost(&self.0.adapter, &self.0.id)
    }

    #[track_caller]
    pub(crate) fn result(&self) -> String {
        self.0.pending.ok()["result"].as_str().unwrap().into()
    }

    #[track_caller]
    pub(crate) fn error(&self) -> (Trouble, Duration) {
        self.0.pending.error()
    }
}

#[track_caller]
fn lost(adapter: &Adapter, id: &str) -> Event {
    adapter.event("lost", |event| event["event"] == "lost" && event["lease"] == id)
}

impl Lease {
    fn ask(&self, what: &str, more: Value) -> Pending {
        let mut request = more;
        request["lease"] = json!(self.id);
        self.adapter.ask(what, request)
    }

    #[track_caller]
    fn outcome(&self, what: &str, more: Value) -> String {
        self.ask(what, more).ok()["outcome"].as_str().unwrap().into()
    }

    #[track_caller]
    pub(crate) fn release(&self) -> String {
        self.outcome("release", json!({}))
    }

    pub(crate) fn begin_release(&self) -> Pending {
        self.ask("release", json!({}))
    }

    /// Of a term of office.
    #[track_caller]
    pub(crate) fn resign(&self) -> String {
        self.outcome("resign", json!({}))
    }

    #[track_caller]
    pub(crate) fn extend(&self, ttl: Duration) -> String {
        self.outcome("extend", json!({ "ttl": millis(ttl) }))
    }

    pub(crate) fn begin_extend(&self, ttl: Duration) -> Pending {
        self.ask("extend", json!({ "ttl": millis(ttl) }))
    }

    #[track_caller]
    pub(crate) fn extend_by(&self, duration: Duration) -> String {
        self.outcome("extend_by", json!({ "by": millis(duration) }))
    }

    /// Leaves it held. The text by which it can be adopted.
    #[track_caller]
    pub(crate) fn detach(&self) -> String {
        self.ask("detach", json!({})).ok()["text"].as_str().unwrap().into()
    }

    pub(crate) fn guard(&self, command: &[&str]) -> Pending {
        self.ask("guard", json!({ "command": command }))
    }

    /// To a reader or a writer: `upgrade`, `downgrade`.
    #[track_caller]
    pub(crate) fn change(&self, what: &str) -> Value {
        self.ask(what, json!({})).ok()
    }

    #[track_caller]
    pub(crate) fn state(&self) -> State {
        self.begin_state().state()
    }

    pub(crate) fn begin_state(&self) -> PendingState {
        PendingState(self.ask("state", json!({})))
    }

    /// Waits until the program is told that it is lost.
    #[track_caller]
    pub(crate) fn lost(&self) -> Event {
        lost(&self.adapter, &self.id)
    }

    pub(crate) fn is_told_lost(&self) -> bool {
        self.adapter
            .has_told(|event| event["event"] == "lost" && event["lease"] == self.id.as_str())
    }
}

pub(crate) struct PendingState(Pending);

impl PendingState {
    #[track_caller]
    pub(crate) fn state(&self) -> State {
        State::of(&self.0.ok())
    }
}

impl State {
    fn of(answer: &Value) -> Self {
        Self {
            valid_for: answer["valid_for"].as_u64().unwrap(),
            loss: answer["loss"].as_str().map(Into::into),
        }
    }
}

/// Fences are text in the protocol: JSON has no whole numbers of 64 bits that all languages read.
#[track_caller]
fn number(text: &Value) -> u64 {
    text.as_str().unwrap().parse().unwrap()
}
