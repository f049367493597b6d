//! The client's traces as sentences: all of them with --verbose, otherwise only that a server is silent while a lock
//! is held, which the user must know.

use crate::duration::show;
use crate::output;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Whether a lock is held. Before that, the line about the wait reports a silent server.
static HOLDING: AtomicBool = AtomicBool::new(false);
/// When the last renewed lease ends.
static LEASE: Mutex<Option<Instant>> = Mutex::new(None);
/// Why the last silent server did not answer.
static SILENCE: Mutex<Option<String>> = Mutex::new(None);

struct Story {
    server: String,
    verbose: bool,
}

pub(crate) fn listen(server: String, verbose: bool) {
    // Nothing else in this process sets a subscriber.
    let _ = tracing::subscriber::set_global_default(Story { server, verbose });
}

pub(crate) fn holding(is_held: bool) {
    HOLDING.store(is_held, Relaxed);
}

/// The silent server and the reason, if one is silent.
pub(crate) fn silence() -> Option<String> {
    SILENCE.lock().ok()?.clone()
}

impl Subscriber for Story {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "leasehold" && *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.note(&fields);
        if let Some(text) = self.sentence(&fields) {
            output::tell(&text);
        }
    }
}

impl Story {
    fn note(&self, fields: &Fields) {
        let lease = match fields.text("message") {
            "acquired" | "extended" => fields.millis("ttl_ms"),
            "unreachable" => {
                let told = format!("{}: {}", self.server, fields.text("error"));
                return set(&SILENCE, Some(told));
            }
            "reachable again" => return set(&SILENCE, None),
            _ => return,
        };
        set(&LEASE, Instant::now().checked_add(lease));
    }

    fn sentence(&self, fields: &Fields) -> Option<String> {
        let (lock, server) = (output::printable(fields.text("lock")), &self.server);
        let held = HOLDING.load(Relaxed);
        match fields.text("message") {
            "unreachable" if held || self.verbose => {
                let left = LEASE.lock().ok().and_then(|lease| *lease);
                let left = left.map(|end| end.saturating_duration_since(Instant::now()));
                let end = match left.filter(|_| held) {
                    Some(left) => format!("; the lease ends in {}", show(left)),
                    None => String::new(),
                };
                Some(format!("{server} does not answer: {}{end}", fields.text("error")))
            }
            "reachable again" if held || self.verbose => {
                let lasted = show(fields.millis("for_ms"));
                Some(format!("{server} answers again, after {lasted}"))
            }
            "acquired" if self.verbose => Some(format!(
                "{lock} acquired after {}, as {}, with fence {} and a lease of {}",
                show(fields.millis("waited_ms")),
                output::printable(fields.text("owner")),
                fields.text("fence"),
                show(fields.millis("ttl_ms")),
            )),
            "extended" if self.verbose => {
                Some(format!("{lock} extended for {}", show(fields.millis("ttl_ms"))))
            }
            "released" if self.verbose => Some(format!("{lock} released")),
            "released later" if self.verbose => {
                Some(format!("{lock} is released when its least time is over"))
            }
            _ => None,
        }
    }
}

fn set<T>(cell: &Mutex<T>, value: T) {
    if let Ok(mut cell) = cell.lock() {
        *cell = value;
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Fields {
    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn millis(&self, name: &str) -> Duration {
        Duration::from_millis(self.text(name).parse().unwrap_or_default())
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}
