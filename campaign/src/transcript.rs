//! Histories as text, for checkers of others: EDN as Jepsen and Knossos read it, or the same maps as lines of JSON.
//!
//! ```text
//!   {:process 3, :type :invoke, :f :acquire, :time …, :value {:owner 7, :lock 0, :ttl 20, :share 1}}
//!   {:process 3, :type :ok, :f :acquire, :time …, :value {:owner 7, …, :fence 12}}
//!   {:process :nemesis, :type :info, :f :loss, :time …, :until …}
//! ```
//!
//! `:fail` changed nothing, and `:info` may have changed something or may do so yet. Times are nanoseconds. `:value` has no lock
//! if all are meant.

use crate::checker::{History, Rules, Span};
use crate::record::{EVERY_LOCK, Op, Outcome, Record};
use std::collections::BTreeSet;
use std::io::{self, Write};

/// How the maps are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Lines of JSON.
    Json,
    /// Extensible data notation, the format of Clojure.
    Edn,
}

enum Value<'v> {
    Word(&'v str),
    Number(u64),
    Text(&'v str),
    Map(Vec<(&'v str, Value<'v>)>),
}

use Value::{Map, Number, Text, Word};

impl Shape {
    /// Writes one round, which `what` says begins a `run` on new servers, or a `round` on those of before.
    pub fn write(
        self,
        mut to: impl Write,
        what: &str,
        (history, rules): (&History, &Rules),
        faults: &[(u64, String)],
    ) -> io::Result<()> {
        let records = &history.records;
        let begin = records.iter().map(|record| record.asked).min().unwrap_or(0);
        let late = u64::try_from(rules.late_millis).unwrap_or(0);
        self.nemesis(&mut to, what, begin, ("late", Number(late)))?;
        for (f, spans) in [
            ("loss", &rules.loss),
            ("standstill", &rules.standstill),
            ("forgotten", &rules.forgotten),
            ("beside", &rules.beside),
            ("behind", &rules.behind),
        ] {
            for Span { from, to: until } in spans {
                self.nemesis(&mut to, f, *from, ("until", Number(until * 1_000)))?;
            }
        }
        for (at, fault) in faults {
            self.nemesis(&mut to, "fault", *at, ("value", Text(fault)))?;
        }
        // Replies come after requests of the same moment: such operations are concurrent. The order of requests is kept.
        let mut events: Vec<_> = (0..records.len())
            .flat_map(|at| [(records[at].asked, false, at), (records[at].told, true, at)])
            .collect();
        events.sort_unstable();
        // A process has one operation at a time, and none after one whose outcome is not known. Clients pipeline.
        let (mut idle, mut made) = (BTreeSet::new(), 0);
        let mut process = vec![0; records.len()];
        for (time, is_reply, at) in events {
            let record = &records[at];
            if !is_reply {
                process[at] = idle.pop_first().unwrap_or(made);
                made = made.max(process[at] + 1);
            } else if !is_open(record) {
                idle.insert(process[at]);
            }
            let map = line(record, process[at], (time, is_reply));
            self.line(&mut to, map)?;
        }
        Ok(())
    }

    fn nemesis(
        self,
        to: &mut impl Write,
        f: &str,
        time: u64,
        more: (&str, Value<'_>),
    ) -> io::Result<()> {
        let head = [("process", Word("nemesis")), ("type", Word("info")), ("f", Word(f))];
        let mut map = Vec::from(head);
        map.extend([("time", Number(time * 1_000)), more]);
        self.line(to, map)
    }

    fn line(self, to: &mut impl Write, map: Vec<(&str, Value<'_>)>) -> io::Result<()> {
        self.value(to, &Map(map))?;
        to.write_all(b"\n")
    }

    fn value(self, to: &mut impl Write, value: &Value<'_>) -> io::Result<()> {
        let is_json = self == Self::Json;
        match value {
            Word(word) if is_json => write!(to, "\"{word}\""),
            Word(word) => write!(to, ":{word}"),
            Number(number) => write!(to, "{number}"),
            Text(text) => write!(to, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
            Map(map) => {
                for (at, (key, value)) in map.iter().enumerate() {
                    to.write_all(if at == 0 { b"{" } else { b", " })?;
                    self.value(to, &Word(key))?;
                    to.write_all(if is_json { b": " } else { b" " })?;
                    self.value(to, value)?;
                }
                to.write_all(b"}")
            }
        }
    }
}

/// Whether nobody knows if the operation has had its effect.
fn is_open(record: &Record) -> bool {
    matches!(record.outcome, Outcome::Unknown | Outcome::Over)
}

fn line(record: &Record, process: usize, (time, is_reply): (u64, bool)) -> Vec<(&str, Value<'_>)> {
    let Record { owner, lock, ttl, share, set, fence, .. } = *record;
    let f = match record.op {
        Op::Try | Op::Wait => "acquire",
        Op::Extend => "extend",
        Op::Release => "release",
        Op::Check => "check",
        Op::Delete => "delete",
        Op::Seen => "seen",
        Op::Closed => "closed",
    };
    let kind = match record.outcome {
        _ if !is_reply => "invoke",
        Outcome::Ok => "ok",
        Outcome::Refused | Outcome::Failed => "fail",
        Outcome::Unknown | Outcome::Over => "info",
    };
    let mut value = vec![("owner", owner.into()), ("lock", lock.into()), ("ttl", ttl.into())];
    value.retain(|(name, _)| *name != "lock" || lock != EVERY_LOCK);
    value.extend([("share", share.into()), ("set", set.into())]);
    if is_reply {
        value.push(("fence", fence));
    }
    let flags = [
        ("block", record.op == Op::Wait),
        ("ticket", record.is_ticket),
        ("over", is_reply && record.outcome == Outcome::Over),
        ("error", is_reply && record.outcome == Outcome::Failed),
    ];
    value.extend(flags.into_iter().filter(|(_, is)| *is).map(|(name, _)| (name, 1)));
    let value = value.into_iter().map(|(name, number)| (name, Number(number))).collect();
    vec![
        ("process", Number(process as u64)),
        ("type", Word(kind)),
        ("f", Word(f)),
        ("time", Number(time * 1_000)),
        ("value", Map(value)),
    ]
}
