//! Parses the replies of servers.

use super::told::{Contention, Event, Facts, Hold, Holder, Waiter};
use crate::fields::Fields;
use crate::output::printable;
use redis::{RedisError, Value};
use std::time::Duration;

type Answer = Result<Value, RedisError>;

pub(super) fn number(value: &Value) -> Option<u64> {
    redis::from_redis_value(value.clone()).ok()
}

/// Notes once what a refused command means to the user.
pub(super) fn note_refused(answer: Option<&Answer>, command: &str, notes: &mut Vec<String>) {
    let Some(Err(error)) = answer else { return };
    let text = error.to_string();
    let note = match error.code() {
        Some("NOPERM") => {
            format!("{command} is refused (NOPERM): let this user run +{}", command.to_lowercase())
        }
        // Not a lock of this server: its slot is moving, or the key has another type by now.
        Some("MOVED" | "ASK" | "WRONGTYPE") => return,
        _ if text.contains("unknown command") => {
            format!(
                "its module is older and has no {command}: load a newer one to see what it tells"
            )
        }
        _ => format!("{command}: {}", printable(&text)),
    };
    if !notes.contains(&note) {
        notes.push(note);
    }
}

/// From `TIME`, the sections of `INFO`, and the one setting that INFO lacks.
pub(super) fn facts(clock: &Answer, infos: &[Answer], tickets: &Answer) -> Facts {
    let mut info = String::new();
    for section in infos.iter().flatten() {
        info.push_str(&redis::from_redis_value::<String>(section.clone()).unwrap_or_default());
        info.push('\n');
    }
    let field = |name: &str| {
        info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    };
    let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
    let count = |name: &str| number(name).unwrap_or_default();
    let micros = |name: &str| Duration::from_micros(count(name));
    let version = match (field("valkey_version"), field("redis_version")) {
        (Some(version), _) => format!("Valkey {version}"),
        (None, Some(version)) => format!("Redis {version}"),
        (None, None) => "unknown".to_owned(),
    };
    let (seconds, rest) = match clock {
        Ok(clock) => redis::from_redis_value::<(u64, u64)>(clock.clone()).unwrap_or_default(),
        Err(_) => (0, 0),
    };
    let setting = tickets.as_ref().ok().map(|told| redis::from_redis_value(told.clone()));
    let setting =
        setting.and_then(|pairs: Result<Vec<String>, _>| pairs.ok()?.get(1)?.parse().ok());
    Facts {
        version,
        module: number("leasehold_version").map(module_version),
        is_replica: field("role") == Some("slave"),
        run: field("run_id").unwrap_or_default().to_owned(),
        clock: seconds.saturating_mul(1_000_000).saturating_add(rest),
        held: count("leasehold_held"),
        waiters: count("leasehold_waiters"),
        most_waiters: number("leasehold_effective_max_waiters"),
        tickets: count("leasehold_tickets"),
        most_tickets: setting,
        clients: count("connected_clients"),
        most_clients: number("maxclients"),
        memory: count("used_memory"),
        most_memory: number("maxmemory").filter(|most| *most > 0),
        grants: count("leasehold_grants"),
        hand_offs: count("leasehold_hand_offs"),
        queue_full: count("leasehold_queue_full"),
        wait_p50: micros("leasehold_wait_us_p50"),
        wait_p99: micros("leasehold_wait_us_p99"),
        longest_wait: micros("leasehold_longest_wait_us"),
        quarantine: micros("leasehold_quarantine_left_us"),
        evictions_pending: count("leasehold_evictions_pending"),
        panics: count("leasehold_panics_caught"),
    }
}

/// 1.2.3 is 10203.
fn module_version(number: u64) -> String {
    let part = |of: u64| number.checked_div(of).unwrap_or_default() % 100;
    format!("{}.{}.{}", part(10_000), part(100), part(1))
}

/// The entries of `LOCK.TOP`: key, database, and how contended it is.
pub(super) fn contended(top: &Value) -> Vec<(Vec<u8>, u64, Contention)> {
    let each = |lock: Fields<'_>| {
        let contention = Contention {
            waits: lock.number("waits")?,
            refused: lock.number("refused")?,
            wait_total: Duration::from_millis(lock.number("wait-total")?),
            wait_longest: Duration::from_millis(lock.number("wait-longest")?),
        };
        Some((lock.bytes("key")?, lock.number("db")?, contention))
    };
    Fields::of_each(top).into_iter().filter_map(each).collect()
}

/// The entries of `LOCK.LOG`.
pub(super) fn events(log: &Value) -> Vec<Event> {
    let each = |event: Fields<'_>| {
        Some(Event {
            id: event.number("id")?,
            time: event.number("time")?,
            what: event.text("event")?,
            name: event.text("key")?,
            owner: event.text("owner")?,
            millis: event.number("ms"),
        })
    };
    Fields::of_each(log).into_iter().filter_map(each).collect()
}

/// The entries of `LOCK.HOLDERS`.
pub(super) fn holders(list: &Value) -> Vec<Holder> {
    Fields::of_each(list).iter().filter_map(holder).collect()
}

fn holder(fields: &Fields<'_>) -> Option<Holder> {
    Some(Holder {
        owner: fields.text("owner")?,
        fence: fields.number("fence")?,
        left: fields.number("ttl").map(Duration::from_millis),
        share: fields.number("share"),
    })
}

/// The entries of `LOCK.WAITERS`.
pub(super) fn waiters(list: &Value) -> Vec<Waiter> {
    let each = |waiter: Fields<'_>| {
        Some(Waiter {
            owner: waiter.text("owner")?,
            client: waiter.number("client").unwrap_or_default(),
            waited: Duration::from_millis(waiter.number("waited")?),
            patience: waiter.number("patience").map(Duration::from_millis),
            share: waiter.number("share").unwrap_or(1),
            kind: waiter.text("kind").unwrap_or_default(),
        })
    };
    Fields::of_each(list).into_iter().filter_map(each).collect()
}

/// `LOCK.INFO`: the hold, and how many wait.
pub(super) fn of_info(info: &Answer) -> (Hold, Option<u64>) {
    let info = match info {
        Ok(info) => info,
        Err(_) => return (Hold::Unknown("refused"), None),
    };
    let Some(fields) = Fields::of(info) else { return (Hold::Free, Some(0)) };
    let waiters = fields.number("waiters");
    match holder(&fields) {
        Some(hold) => {
            (Hold::Held { hold, holders: fields.number("holders").unwrap_or(1) }, waiters)
        }
        None => (Hold::Unknown("not understood"), waiters),
    }
}

/// `GET` and `PTTL`, for servers without the module.
pub(super) fn of_value(value: &Answer, left: &Answer) -> Hold {
    let (Ok(Value::BulkString(value)), Ok(Value::Int(left))) = (value, left) else {
        return Hold::Free;
    };
    let value = String::from_utf8_lossy(value);
    let Some((fence, owner)) = value.split_once(':') else { return Hold::Free };
    // -2: the key has expired between the two commands; -1: no expiry.
    let left = match u64::try_from(*left) {
        Ok(left) => Some(Duration::from_millis(left)),
        Err(_) if *left == -1 => None,
        Err(_) => return Hold::Free,
    };
    let Ok(fence) = fence.parse() else { return Hold::Free };
    let hold = Holder { owner: owner.to_owned(), fence, left, share: None };
    Hold::Held { hold, holders: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Answer {
        Ok(Value::BulkString(text.as_bytes().to_vec()))
    }

    #[test]
    fn what_a_server_says_of_itself_is_read() {
        let infos = [
            text("# Server\r\nredis_version:7.0.15\r\nrun_id:abc\r\n"),
            text("# Memory\r\nused_memory:7\r\nmaxmemory:0\r\n"),
            text("# leasehold\r\nleasehold_version:10203\r\nleasehold_wait_us_p99:1500\r\n"),
        ];
        let clock = Ok(Value::Array(vec![text("5").unwrap(), text("7").unwrap()]));
        let setting = Ok(Value::Array(vec![text("x").unwrap(), text("9").unwrap()]));
        let facts = facts(&clock, &infos, &setting);
        assert_eq!(
            (facts.version.as_str(), facts.module.as_deref()),
            ("Redis 7.0.15", Some("1.2.3"))
        );
        assert_eq!(
            (facts.clock, facts.most_tickets, facts.run.as_str()),
            (5_000_007, Some(9), "abc")
        );
        assert_eq!((facts.memory, facts.most_memory), (7, None));
        assert_eq!(facts.wait_p99, Duration::from_micros(1_500));
    }

    #[test]
    fn a_refused_question_is_explained_once() {
        // As a server sends it.
        let error = |line: &str| -> Answer {
            let reply = redis::parse_redis_value(line.as_bytes()).unwrap();
            reply.extract_error()
        };
        let mut notes = Vec::new();
        for _ in 0..2 {
            note_refused(Some(&error("-NOPERM no\r\n")), "LOCK.TOP", &mut notes);
            let unknown = error("-ERR unknown command 'LOCK.LOG', with args\r\n");
            note_refused(Some(&unknown), "LOCK.LOG", &mut notes);
        }
        note_refused(Some(&error("-MOVED 1 a:2\r\n")), "LOCK.INFO", &mut notes);
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("+lock.top") && notes[1].contains("older"), "{notes:?}");
    }

    #[test]
    fn a_value_is_a_lock_with_or_without_an_end() {
        let left = |left| of_value(&text("17:alice:x"), &Ok(Value::Int(left)));
        let Hold::Held { hold, .. } = left(50) else { panic!() };
        assert_eq!((hold.owner.as_str(), hold.fence), ("alice:x", 17));
        assert_eq!(hold.left, Some(Duration::from_millis(50)));
        assert!(matches!(left(-1), Hold::Held { hold: Holder { left: None, .. }, .. }));
        assert_eq!(left(-2), Hold::Free);
    }
}
