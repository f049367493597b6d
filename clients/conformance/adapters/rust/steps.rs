//! The steps of each lock, from what the crate tells through `tracing`.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes each step as a line.
pub(crate) struct Steps(pub(crate) fn(&Value));

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Steps {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "leasehold"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        let of = |name| fields.0.get(name).cloned().unwrap_or_default();
        let step = match of("message").as_str() {
            "acquired" => "granted".to_owned(),
            "extended" => "renewed".to_owned(),
            "failed" => "refused".to_owned(),
            "released later" => "released".to_owned(),
            other => other.to_owned(),
        };
        (self.0)(&json!({ "event": "step", "step": step, "name": of("lock") }));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
