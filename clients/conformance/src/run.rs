//! Runs each scenario with each client, some at a time.

use crate::adapter::Unsupported;
use crate::clients::Client;
use crate::options::Options;
use crate::scenarios::Scenario;
use crate::scene::Scene;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// How many of those that took longest are named.
const SLOWEST_SHOWN: usize = 5;

/// What came of a scenario with a client.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Passed(Duration),
    Failed(String),
    /// The client, or the server, does not have what it is about.
    Without(String),
}

#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) clients: Vec<Client>,
    /// By scenario, client and round.
    outcomes: Vec<Vec<Vec<Outcome>>>,
    took: Duration,
}

/// A case: the number of a scenario, and that of a client.
type Case = (usize, usize);

pub(crate) fn run(scenarios: &[Scenario], options: &Options) -> Results {
    keep_panics();
    let begun = Instant::now();
    let clients = &options.clients;
    let present: Vec<Client> =
        clients.iter().filter(|client| client.missing.is_none()).cloned().collect();
    let mut cases: Vec<Case> = Vec::new();
    for _ in 0..options.rounds {
        for scenario in 0..scenarios.len() {
            let runs = |client: &usize| clients[*client].missing.is_none();
            cases.extend((0..clients.len()).filter(runs).map(|client| (scenario, client)));
        }
    }
    let outcomes = Mutex::new(vec![vec![Vec::new(); clients.len()]; scenarios.len()]);
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                while let Some(&(scenario, client)) = cases.get(next.fetch_add(1, Relaxed)) {
                    let (one, with) = (&scenarios[scenario], &clients[client]);
                    let outcome = try_one(one, with, &present);
                    if let Outcome::Failed(why) = &outcome {
                        println!("FAILED {} with {}\n{why}", one.name, with.name);
                    }
                    outcomes.lock().unwrap()[scenario][client].push(outcome);
                }
            });
        }
    });
    Results {
        scenarios: scenarios.to_vec(),
        clients: clients.clone(),
        outcomes: outcomes.into_inner().unwrap(),
        took: begun.elapsed(),
    }
}

fn try_one(scenario: &Scenario, client: &Client, present: &[Client]) -> Outcome {
    if let Some(why) = client.lacks(scenario.name) {
        return Outcome::Without(why.into());
    }
    let begun = Instant::now();
    let scene = Scene::of(client, present);
    let ran = catch_unwind(AssertUnwindSafe(|| (scenario.run)(&scene)));
    match ran {
        Ok(()) => Outcome::Passed(begun.elapsed()),
        Err(why) => match why.downcast::<Unsupported>() {
            Ok(reason) => Outcome::Without(reason.0),
            Err(_) => {
                let why = LAST_PANIC.with_borrow(Clone::clone);
                Outcome::Failed(format!("{why}\n{}", scene.conversations()))
            }
        },
    }
}

thread_local! {
    /// The last panic of this thread: what it said, and where.
    static LAST_PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Panics are shown with the conversation, and not in between.
fn keep_panics() {
    std::panic::set_hook(Box::new(|panic| {
        LAST_PANIC.with_borrow_mut(|last| *last = panic.to_string());
    }));
}

impl Results {
    /// The worst of all rounds.
    pub(crate) fn of(&self, scenario: usize, client: usize) -> Option<&Outcome> {
        let rounds = &self.outcomes[scenario][client];
        let failed = rounds.iter().find(|outcome| matches!(outcome, Outcome::Failed(_)));
        failed.or(rounds.last())
    }

    pub(crate) fn failed(&self) -> bool {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_))) > 0
    }

    fn count(&self, is_it: impl Fn(&Outcome) -> bool) -> usize {
        self.outcomes.iter().flatten().flatten().filter(|outcome| is_it(outcome)).count()
    }

    pub(crate) fn print(&self) {
        for client in &self.clients {
            if let Some(missing) = &client.missing {
                println!("skipped: {}: {missing}", client.name);
            }
        }
        for (number, scenario) in self.scenarios.iter().enumerate() {
            for (client, with) in self.clients.iter().enumerate() {
                match self.of(number, client) {
                    Some(Outcome::Failed(_)) => {
                        println!("FAILED  {} with {}", scenario.name, with.name)
                    }
                    Some(Outcome::Without(why)) => {
                        println!("without {} with {}: {why}", scenario.name, with.name);
                    }
                    Some(Outcome::Passed(_)) | None => {}
                }
            }
        }
        for (took, name) in self.passed().into_iter().take(SLOWEST_SHOWN) {
            println!("{:6.1} s  {name}", took.as_secs_f64());
        }
        let passed = self.count(|outcome| matches!(outcome, Outcome::Passed(_)));
        let failed = self.count(|outcome| matches!(outcome, Outcome::Failed(_)));
        let without = self.count(|outcome| matches!(outcome, Outcome::Without(_)));
        println!(
            "conformance: {} scenarios, {passed} passed, {failed} failed, {without} that a client is without, in {:.0} s",
            self.scenarios.len(),
            self.took.as_secs_f64()
        );
    }

    /// The slowest first.
    fn passed(&self) -> Vec<(Duration, String)> {
        let mut times = Vec::new();
        for (number, scenario) in self.scenarios.iter().enumerate() {
            for (client, with) in self.clients.iter().enumerate() {
                if let Some(Outcome::Passed(took)) = self.of(number, client) {
                    times.push((*took, format!("{} with {}", scenario.name, with.name)));
                }
            }
        }
        times.sort_by(|one, other| other.cmp(one));
        times
    }
}
