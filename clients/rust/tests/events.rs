//! What is traced of each lock.

use crate::scene::{
    Kind, LONG, NOTHING, is_alone, locks, locks_with, millis, quorum, server, soon, standing,
};
use leasehold_client::{Error, Released, Renew, Settings};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Listens for all tests of this process, and keeps what is about the locks of those that asked, as text.
///
/// One for all: with a listener for each thread, a place in the code that is first reached by a thread without one may
/// stay silent on every thread.
#[derive(Default)]
struct Ear {
    heard: Mutex<HashMap<String, Vec<Line>>>,
    spans: Mutex<Vec<Span>>,
    /// What is done as soon as the lock is acquired.
    then: Mutex<HashMap<String, Box<dyn FnOnce() + Send>>>,
}

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    name: String,
    fields: BTreeMap<&'static str, String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Span {
    name: &'static str,
    level: Level,
    fields: BTreeMap<&'static str, String>,
    is_closed: bool,
}

/// What is traced of one lock, or of one server.
struct Traced {
    ear: &'static Ear,
    lock: String,
}

impl Traced {
    /// No other test of this process may use the name.
    fn of(lock: &str) -> Self {
        static EAR: OnceLock<Arc<Ear>> = OnceLock::new();
        let ear = EAR.get_or_init(|| {
            let ear = Arc::<Ear>::default();
            tracing::subscriber::set_global_default(Arc::clone(&ear)).unwrap();
            tracing::callsite::rebuild_interest_cache();
            ear
        });
        assert!(ear.heard().insert(lock.to_owned(), Vec::new()).is_none());
        Self { ear, lock: lock.to_owned() }
    }

    /// Does this where it is traced that the lock is acquired, and before anything else goes on.
    fn when_acquired(&self, then: impl FnOnce() + Send + 'static) {
        self.ear.then.lock().unwrap().insert(self.lock.clone(), Box::new(then));
    }

    /// The spans of this lock, in the order in which they began.
    fn spans(&self) -> Vec<Span> {
        let spans = self.ear.spans.lock().unwrap();
        spans.iter().filter(|span| span.fields["leasehold.lock"] == self.lock).cloned().collect()
    }

    /// The events of this name.
    fn all(&self, name: &str) -> Vec<Line> {
        self.ear.heard()[&self.lock].iter().filter(|line| line.name == name).cloned().collect()
    }
}

impl Ear {
    fn heard(&self) -> MutexGuard<'_, HashMap<String, Vec<Line>>> {
        self.heard.lock().unwrap()
    }

    fn note(&self, metadata: &Metadata<'_>, mut fields: Fields) {
        let mut then = None;
        if metadata.target() == "leasehold"
            && let lock = ["lock", "locks"].iter().find_map(|field| fields.0.get(field)).cloned()
            && let lock = lock.unwrap_or_default()
            && let Some(lines) = self.heard().get_mut(&lock)
        {
            let name = fields.0.remove("message").unwrap();
            let is_acquired = name == "acquired";
            lines.push(Line { level: *metadata.level(), name, fields: fields.0 });
            if is_acquired {
                then = self.then.lock().unwrap().remove(&lock);
            }
        }
        then.into_iter().for_each(|then| then());
    }
}

#[derive(Default)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl Subscriber for Ear {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let metadata = attributes.metadata();
        if metadata.target() != "leasehold" {
            return Id::from_u64(u64::MAX);
        }
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let (name, level) = (metadata.name(), *metadata.level());
        let mut spans = self.spans.lock().unwrap();
        spans.push(Span { name, level, fields: fields.0, is_closed: false });
        Id::from_u64(spans.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        let mut fields = Fields::default();
        values.record(&mut fields);
        if let Some(span) = self.spans.lock().unwrap().get_mut(id.into_u64() as usize - 1) {
            span.fields.extend(fields.0);
        }
    }

    fn try_close(&self, id: Id) -> bool {
        let mut spans = self.spans.lock().unwrap();
        spans.get_mut(id.into_u64() as usize - 1).is_some_and(|span| {
            span.is_closed = true;
            true
        })
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.note(event.metadata(), fields);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn each_step_of_a_lock_is_traced_with_its_name_its_fence_and_its_caller() {
    let traced = Traced::of("traced-printer");
    let server = server();
    let locks = locks(&server);
    let asked = || locks.lock("traced-printer").correlation("request 17");
    let guard = asked().ttl(LONG).await.unwrap();
    let (fence, owner) = (guard.fence().to_string(), guard.owner().to_owned());
    guard.extend(LONG).await.unwrap();
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    for (name, more) in [("acquired", "waited_ms"), ("extended", "ttl_ms"), ("released", "lock")] {
        let lines = traced.all(name);
        let [line] = lines.as_slice() else { panic!("{name}: {lines:?}") };
        assert_eq!(line.level, Level::DEBUG);
        assert_eq!(line.fields["lock"], "traced-printer");
        assert_eq!(line.fields["fence"], fence);
        assert_eq!(line.fields["correlation"], "request 17");
        assert_eq!(line.fields["owner"], owner);
        assert_eq!(line.fields["ttl_ms"], "60000");
        assert!(line.fields.contains_key(more), "{line:?}");
    }
    let late = asked().ttl(millis(30)).renew(Renew::Never).await.unwrap();
    soon(late.lost()).await;
    server.cmd("DEL traced-printer");
    assert_eq!(late.release().await.unwrap(), Released::Late);
    let (lost, released) = (
        traced.all("lost"),
        traced.all("released too late: the ttl is too short for the work, or the lock was deleted"),
    );
    for lines in [&lost, &released] {
        let [line] = lines.as_slice() else { panic!("{lines:?}") };
        assert_eq!(line.level, Level::WARN);
        assert_eq!(line.fields["correlation"], "request 17");
        assert_eq!(line.fields["lock"], "traced-printer");
        assert!(line.fields.contains_key("fence") && line.fields.contains_key("owner"));
    }
    assert_eq!(lost[0].fields["why"], "its lease could have ended");
}

#[tokio::test]
async fn each_wait_and_each_hold_is_a_span_that_ends_with_it() {
    let traced = Traced::of("spanned-printer");
    let server = server();
    let locks = locks(&server);
    let asked = || locks.lock("spanned-printer").ttl(LONG).owner("bob").correlation("request 20");
    let span = |name, fence: Option<&str>, outcome: &str, is_closed| {
        let mut fields = BTreeMap::from([
            ("leasehold.lock", "spanned-printer".to_owned()),
            ("leasehold.owner", "bob".to_owned()),
            ("leasehold.correlation", "request 20".to_owned()),
        ]);
        fields.extend(fence.map(|fence| ("leasehold.fence", fence.to_owned())));
        if !outcome.is_empty() {
            fields.insert("leasehold.outcome", outcome.to_owned());
        }
        if ["failed", "taken"].contains(&outcome) {
            fields.insert("otel.status_code", "ERROR".to_owned());
        }
        Span { name, level: Level::INFO, fields, is_closed }
    };
    let guard = asked().await.unwrap();
    let fence = &*guard.fence().to_string();
    let waited = span("leasehold.wait", Some(fence), "acquired", true);
    let held = span("leasehold.hold", Some(fence), "", false);
    assert_eq!(traced.spans(), [waited.clone(), held]);
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    let held = span("leasehold.hold", Some(fence), "released", true);
    assert_eq!(traced.spans(), [waited, held]);

    let guard = asked().ttl(millis(300)).await.unwrap();
    server.cmd("DEL spanned-printer");
    soon(guard.lost()).await;
    let fence = &*guard.fence().to_string();
    let lost = span("leasehold.hold", Some(fence), "taken", true);
    assert_eq!(traced.spans()[3..], [lost], "the guard still lives");

    server.client().grant("spanned-printer", "alice", 60_000);
    assert!(asked().try_now().await.unwrap().is_none());
    assert_eq!(traced.spans()[4..], [span("leasehold.wait", None, "refused", true)]);
}

#[tokio::test]
async fn how_long_a_lock_was_waited_for_is_traced() {
    let traced = Traced::of("traced-queue");
    let server = server();
    let locks = locks(&server);
    let _first = locks.lock("traced-queue").ttl(millis(1_000)).renew(Renew::Never).await.unwrap();
    let _second = locks.lock("traced-queue").await.unwrap();
    assert_second_has_waited(&traced);
}

#[tokio::test]
async fn how_long_a_quorum_was_tried_for_is_traced() {
    let traced = Traced::of("traced-tries");
    let server = server();
    let quorum = quorum(std::slice::from_ref(&server));
    let _first = quorum.lock("traced-tries").ttl(millis(1_000)).renew(Renew::Never).await.unwrap();
    let _second = quorum.lock("traced-tries").await.unwrap();
    assert_second_has_waited(&traced);
}

fn assert_second_has_waited(traced: &Traced) {
    let lines = traced.all("acquired");
    let waited = |at: usize| lines[at].fields["waited_ms"].parse::<u64>().unwrap();
    assert!(waited(0) < 500 && waited(1) >= 500, "{lines:?}");
}

#[tokio::test]
async fn a_request_that_is_granted_nothing_is_traced_with_why() {
    let traced = Traced::of("traced-table");
    let mut server = server();
    let settings =
        Settings { retry_for: millis(100), response_timeout: millis(100), ..Settings::default() };
    let locks = locks_with(&server, settings);
    let asked = || locks.lock("traced-table").ttl(LONG).owner("bob").correlation("request 18");
    let guard = locks.lock("traced-table").try_now().await.unwrap().expect("it is free");
    assert!(asked().try_now().await.unwrap().is_none());
    assert!(asked().wait(millis(50)).await.is_err());
    server.kill();
    assert!(asked().try_now().await.is_err());
    drop(guard);

    let (refused, failed) = (traced.all("refused"), traced.all("failed"));
    assert_eq!((refused.len(), failed.len()), (2, 1), "{refused:?} {failed:?}");
    for line in refused.iter().chain(&failed) {
        let fields = ["owner", "ttl_ms", "correlation"].map(|name| &*line.fields[name]);
        assert_eq!(fields, ["bob", "60000", "request 18"]);
    }
    assert_eq!((refused[0].level, failed[0].level), (Level::DEBUG, Level::WARN));
    assert!(refused[1].fields["waited_ms"].parse::<u64>().unwrap() >= 50);
    assert!(failed[0].fields["error"].contains("no server"), "{failed:?}");
}

#[tokio::test]
async fn a_request_of_a_quorum_that_is_granted_nothing_is_traced_too() {
    let traced = Traced::of("traced-quorum");
    let server = server();
    let quorum = quorum(std::slice::from_ref(&server));
    let ask = || quorum.lock("traced-quorum").correlation("request 19").try_now();
    let guard = ask().await.unwrap().expect("it is free");
    assert!(ask().await.unwrap().is_none());
    assert_eq!(guard.release().await.unwrap(), Released::InTime);
    let [line] = &traced.all("refused")[..] else { panic!("{:?}", traced.all("refused")) };
    assert_eq!(line.fields["correlation"], "request 19");
}

/// In a process of its own, because what is told of servers names no lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_told_of_until_it_can() {
    if !is_alone("events::a_server_that_cannot_be_reached_is_told_of_until_it_can", "") {
        return;
    }
    let traced = Traced::of("");
    for (round, kind) in (1..).zip(Kind::BOTH) {
        let mut server = kind.setup().start();
        let locks = locks_with(&server, Settings { retry_for: millis(300), ..Settings::default() });
        let guard = locks.lock("printer").await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        server.kill();
        let (before, begun) = (traced.all("unreachable").len(), Instant::now());
        assert!(locks.lock("printer").try_now().await.is_err());
        kind.measured("ms until a try fails, limit 300", begun.elapsed().as_millis());
        for _ in 0..2 {
            assert!(locks.lock("printer").try_now().await.is_err());
        }
        let told = traced.all("unreachable").split_off(before);
        // Not with each try, of which there have been many. One may have been given up before the server was back.
        assert!((1..=2).contains(&told.len()) && told[0].level == Level::WARN, "{told:?}");
        server.start_again();
        let guard = soon(locks.lock("printer")).await.unwrap();
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let told = traced.all("reachable again");
        assert!(told.len() >= round && told[0].level == Level::INFO, "{told:?}");
    }
}

/// As at the end of `main`: the runtime ends before the release has been sent, or has been
/// answered.
#[test]
fn a_runtime_that_ends_before_its_locks_are_released_names_them() {
    let server = server();
    let traced = Traced::of("left:dropped left:held");
    let runtime = standing();
    let held = runtime.block_on(async {
        let locks = locks(&server);
        let dropped = locks.lock("left:dropped").ttl(LONG).await.unwrap();
        let held = locks.lock("left:held").ttl(LONG).await.unwrap();
        locks.lock("left:kept").ttl(LONG).await.unwrap().detach();
        assert_eq!(
            locks.lock("left:released").await.unwrap().release().await.unwrap(),
            Released::InTime
        );
        drop(dropped);
        held
    });
    drop(runtime);
    drop(held);
    let warned = traced.all(
        "the runtime ended before these locks were released: they stay until their leases end; \
         Locks::close releases them in time",
    );
    assert_eq!(warned.len(), 1, "{warned:?}");
    assert_eq!((warned[0].level, warned[0].fields["count"].as_str()), (Level::WARN, "2"));
}

/// The task that looks after the guards has had no time to begin.
#[test]
fn a_runtime_of_one_thread_that_ends_at_once_names_what_it_leaves() {
    let server = server();
    let traced = Traced::of("left:at-once");
    let runtime = standing();
    runtime.block_on(async {
        let locks = locks(&server);
        drop(locks.lock("left:at-once").try_now().await.unwrap());
    });
    drop(runtime);
    let name = "the runtime ended before these locks were released: they stay until their leases \
                end; Locks::close releases them in time";
    assert_eq!(traced.all(name).len(), 1);
}

#[test]
fn a_runtime_that_ends_after_its_client_is_closed_has_nothing_to_say() {
    let server = server();
    let traced = Traced::of("closed:held");
    let runtime = standing();
    let held = runtime.block_on(async {
        let locks = locks(&server);
        let held = locks.lock("closed:held").ttl(LONG).await.unwrap();
        assert_eq!(locks.close(millis(5_000)).await, NOTHING);
        held
    });
    drop(runtime);
    drop(held);
    let warned = traced.ear.heard()["closed:held"].clone();
    assert!(warned.iter().all(|line| line.level != Level::WARN), "{warned:?}");
}

#[tokio::test]
async fn a_client_that_is_closed_as_a_lock_is_granted_names_it() {
    let traced = Traced::of("closed:granted");
    let server = server();
    let settings = Settings { retry_for: millis(50), ..Settings::default() };
    let locks = locks_with(&server, settings);
    let (closing, named) = (locks.clone(), Arc::<Mutex<_>>::default());
    let noted = Arc::clone(&named);
    traced.when_acquired(move || {
        let close = move || standing().block_on(closing.close(millis(50)));
        *noted.lock().unwrap() = std::thread::spawn(close).join().unwrap();
    });
    let came = locks.lock("closed:granted").await;
    assert!(matches!(came, Err(Error::Closed)), "{came:?}");
    assert_eq!(*named.lock().unwrap(), ["closed:granted"]);
}
