//! What is measured of locks and connections.
//!
//! Each test runs on one thread, to which the recorder listens.

use crate::scene::{
    LONG, Way, both_kinds, client, cut_all, eventually, eventually_waiting, held, locks,
    locks_with, millis, server, soon,
};
use leasehold_client::{Locks, Loss, Released, Renew, Settings};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata,
    SharedString, Unit,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use testkit::lacks_notify;

#[derive(Default)]
struct Recorder {
    metrics: Mutex<BTreeMap<String, Arc<Metric>>>,
}

/// All that was added to it.
#[derive(Default)]
struct Metric(Mutex<Vec<f64>>);

impl Recorder {
    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = key.name().to_owned() + &labels.collect::<String>();
        Arc::clone(self.metrics.lock().unwrap().entry(name).or_default())
    }

    fn all(&self, name: &str) -> Vec<f64> {
        let metrics = self.metrics.lock().unwrap();
        metrics.get(name).map_or_else(Vec::new, |metric| metric.0.lock().unwrap().clone())
    }

    fn sum(&self, name: &str) -> f64 {
        self.all(name).iter().sum()
    }
}

impl Metric {
    fn add(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.add(value as f64);
    }

    fn absolute(&self, _: u64) {
        panic!("it is only added to")
    }
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.add(value);
    }

    fn decrement(&self, value: f64) {
        self.add(-value);
    }

    fn set(&self, _: f64) {
        panic!("it is only added to")
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

#[tokio::test]
async fn requests_are_timed_by_how_they_ended_and_locks_by_how_long_they_were_held() {
    for server in both_kinds() {
        let recorder = Recorder::default();
        let _listens = metrics::set_default_local_recorder(&recorder);
        let (ours, others) = (locks(&server), locks(&server));
        let guard = ours.lock("printer").await.unwrap();
        let refused = others.lock("printer").wait(millis(30)).await;
        assert!(refused.is_err());
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        assert_eq!(recorder.sum("leasehold_acquired_total"), 1.0);
        assert_eq!(recorder.all("leasehold_waited_seconds outcome=acquired").len(), 1);
        let refused = recorder.all("leasehold_waited_seconds outcome=refused");
        assert!(refused[0] >= 0.03, "{refused:?}");
        let held = recorder.all("leasehold_held_seconds");
        assert!(held.len() == 1 && held[0] >= refused[0], "{held:?}");
        assert_eq!(recorder.sum("leasehold_late_total"), 0.0);
    }
}

#[tokio::test]
async fn a_request_that_finds_no_server_is_timed_as_failed() {
    let recorder = Recorder::default();
    let _listens = metrics::set_default_local_recorder(&recorder);
    let settings = Settings { retry_for: millis(50), ..Settings::default() };
    let locks = Locks::with_settings(client(1), settings).unwrap();
    assert!(locks.lock("printer").try_now().await.is_err());
    assert_eq!(recorder.all("leasehold_waited_seconds outcome=failed").len(), 1);
    assert_eq!(recorder.sum("leasehold_acquired_total"), 0.0);
}

#[tokio::test]
async fn locks_that_are_lost_and_late_releases_are_counted() {
    for server in both_kinds() {
        let recorder = Recorder::default();
        let _listens = metrics::set_default_local_recorder(&recorder);
        let locks = locks_with(&server, Settings { ttl: millis(300), ..Settings::default() });
        let taken = locks.lock("taken").await.unwrap();
        server.cmd("DEL taken");
        assert_eq!(soon(taken.lost()).await, Loss::Taken);
        assert_eq!(taken.release().await.unwrap(), Released::Late);
        let expired = locks.lock("expired").ttl(millis(30)).renew(Renew::Never).await.unwrap();
        assert_eq!(soon(expired.lost()).await, Loss::Expired);
        assert_eq!(recorder.sum("leasehold_lost_total why=taken"), 1.0);
        assert_eq!(recorder.sum("leasehold_lost_total why=expired"), 1.0);
        assert_eq!(recorder.sum("leasehold_late_total"), 1.0);
        assert_eq!(recorder.all("leasehold_held_seconds").len(), 2, "each once");
        let kept = locks.lock("kept").await.unwrap();
        assert!(held(&server, "kept").is_some() && kept.detach().owner().len() == 36);
        assert_eq!(recorder.all("leasehold_held_seconds").len(), 3);
    }
}

#[tokio::test]
async fn those_who_wait_and_connections_that_were_opened_again_are_counted() {
    for (way, gauge) in [
        (Way::Tickets, "leasehold_waiting_tickets"),
        (Way::Connections, "leasehold_waiting_connections"),
    ] {
        if way == Way::Tickets && lacks_notify() {
            continue;
        }
        let recorder = Recorder::default();
        let _listens = metrics::set_default_local_recorder(&recorder);
        let server = server();
        let locks = way.locks(&server, server.port(), Settings::default());
        let guard = locks.lock("printer").ttl(LONG).await.unwrap();
        let waiting = tokio::spawn(locks.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(recorder.sum(gauge), 1.0);
        assert_eq!(recorder.sum("leasehold_reconnects_total"), 0.0);
        cut_all(&server);
        assert!(locks.info("printer").await.unwrap().is_some());
        eventually("the connection is back", || {
            let count = recorder.sum("leasehold_reconnects_total");
            if count > 0.0 { Ok(()) } else { Err(count) }
        })
        .await;
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(guard.release().await.unwrap(), Released::InTime);
        let next = soon(waiting).await.unwrap().unwrap();
        assert_eq!(recorder.sum(gauge), 0.0);
        let waiting = tokio::spawn(locks.lock("printer").into_future());
        eventually_waiting(&server, "printer", 1).await;
        assert_eq!(recorder.sum(gauge), 1.0);
        waiting.abort();
        assert!(waiting.await.is_err());
        assert_eq!(recorder.sum(gauge), 0.0, "whoever has gone does not wait");
        assert_eq!(next.release().await.unwrap(), Released::InTime);
    }
}
