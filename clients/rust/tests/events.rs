//! What is traced of each lock.

use crate::scene::{Kind, LONG, eventually, locks, locks_with, millis, server, soon, url};
use leasehold_client::{Locks, Quorum, Released, Settings};
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
}

#[derive(Clone, Debug)]
struct Line {
    level: Level,
    name: String,
    fields: BTreeMap<&'static str, String>,
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
        if metadata.target() == "leasehold"
            && let Some(lock) =
                ["lock", "locks", "server"].iter().find_map(|field| fields.0.get(field)).cloned()
            && let Some(lines) = self.heard().get_mut(&lock)
        {
            let message = fields.0.remove("message");
            let name = message.unwrap_or_else(|| format!("span {}", metadata.name()));
            lines.push(Line { level: *metadata.level(), name, fields: fields.0 });
        }
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

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut fields = Fields::default();
        span.record(&mut fields);
        self.note(span.metadata(), fields);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.note(event.metadata(), fields);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn each_step_of_a_lock_is_traced_with_its_name_its_fence_and_its_caller() {
    let traced = Traced::of("traced-printer");
    let server = server();
    let locks = locks(&server).await;
    let asked = || locks.lock("traced-printer").correlation("request 17");
    let guard = asked().ttl(LONG).await.unwrap();
    let (fence, owner) = (guard.fence().to_string(), guard.owner().to_owned());
    assert_eq!(guard.extend(LONG).await.unwrap(), leasehold_client::Extended::Extended);
    assert_eq!(guard.release().await.unwrap(), Released::Released);
    for (name, more) in [("acquired", "waited_ms"), ("extended", "valid_ms"), ("released", "lock")]
    {
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
    let spans = traced.all("span acquire");
    assert_eq!(
        (&*spans[0].fields["lock"], &*spans[0].fields["correlation"]),
        ("traced-printer", "request 17")
    );

    let late = asked().fixed_ttl(millis(30)).await.unwrap();
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
        assert_eq!(line.fields["ttl_ms"], "30");
    }
    assert_eq!(lost[0].fields["why"], "the lease could have ended");
}

#[tokio::test]
async fn how_long_a_lock_was_waited_for_is_traced() {
    let traced = Traced::of("traced-queue");
    let server = server();
    let locks = locks(&server).await;
    let _first = locks.lock("traced-queue").fixed_ttl(millis(1_000)).await.unwrap();
    let _second = locks.lock("traced-queue").await.unwrap();
    assert_second_has_waited(&traced);
}

#[tokio::test]
async fn how_long_a_quorum_was_tried_for_is_traced() {
    let traced = Traced::of("traced-tries");
    let server = server();
    let quorum = Quorum::connect_with([url(server.port())], Settings::default()).await.unwrap();
    let _first = quorum.lock("traced-tries").fixed_ttl(millis(1_000)).await.unwrap();
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
    let settings = Settings::default().within(millis(100)).response(millis(100));
    let locks = locks_with(&server, settings).await;
    let asked = || locks.lock("traced-table").ttl(LONG).owner("bob").correlation("request 18");
    let guard = locks.try_lock("traced-table").await.unwrap().expect("it is free");
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
    let quorum = Quorum::connect([url(server.port())]).await.unwrap();
    let ask = || quorum.lock("traced-quorum").correlation("request 19").try_now();
    let guard = ask().await.unwrap().expect("it is free");
    assert!(ask().await.unwrap().is_none());
    assert!(guard.release().await.unwrap().in_time());
    let [line] = &traced.all("refused")[..] else { panic!("{:?}", traced.all("refused")) };
    assert_eq!(line.fields["correlation"], "request 19");
    assert_eq!(line.fields.get("owner"), None, "it is another one with each try");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cannot_be_reached_is_told_of_until_it_can() {
    for kind in Kind::BOTH {
        let mut server = kind.setup().start();
        let traced = Traced::of(&format!("127.0.0.1:{}", server.port()));
        let locks = locks_with(&server, Settings::default().within(millis(300))).await;
        drop(locks.lock("printer").await.unwrap());
        locks.settle().await;
        assert!(traced.all("unreachable").is_empty());
        server.kill();
        let (trying, begun) = (locks.clone(), Instant::now());
        let first = tokio::spawn(async move { trying.try_lock("printer").await });
        eventually("it is told", || traced.all("unreachable").pop().ok_or(())).await;
        kind.measured("ms until an unreachable server is told of", begun.elapsed().as_millis());
        assert!(first.await.unwrap().is_err());
        kind.measured("ms until a try fails, limit 300", begun.elapsed().as_millis());
        for _ in 0..2 {
            assert!(locks.try_lock("printer").await.is_err());
        }
        let told = traced.all("unreachable");
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].level, Level::WARN);
        assert!(told[0].fields["error"].contains("refused"), "{told:?}");
        assert!(traced.all("reachable again").is_empty());
        server.start_again();
        drop(soon(locks.lock("printer")).await.unwrap());
        let told = traced.all("reachable again");
        assert_eq!((told.len(), told[0].level), (1, Level::INFO), "{told:?}");
    }
}

/// As at the end of `main`: the runtime ends before the release has been sent, or has been
/// answered.
#[test]
fn a_runtime_that_ends_before_its_locks_are_released_names_them() {
    let server = server();
    let traced = Traced::of("left:dropped left:held");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = runtime.block_on(async {
        let locks = locks(&server).await;
        let dropped = locks.lock("left:dropped").ttl(LONG).await.unwrap();
        let held = locks.lock("left:held").ttl(LONG).await.unwrap();
        locks.lock("left:kept").ttl(LONG).await.unwrap().keep();
        assert_eq!(
            locks.lock("left:released").await.unwrap().release().await.unwrap(),
            Released::Released
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let locks = Locks::new(url(server.port())).unwrap();
        drop(locks.try_lock("left:at-once").await.unwrap());
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
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let held = runtime.block_on(async {
        let locks = locks(&server).await;
        let held = locks.lock("closed:held").ttl(LONG).await.unwrap();
        assert!(locks.close(millis(5_000)).await.is_empty());
        held
    });
    drop(runtime);
    drop(held);
    let warned = traced.ear.heard()["closed:held"].clone();
    assert!(warned.iter().all(|line| line.level != Level::WARN), "{warned:?}");
}
