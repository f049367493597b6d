//! An adapter: a program that does with a client what the driver asks for. `README.md` has the protocol.

use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::panic::panic_any;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use testkit::signal;

/// Longer than anything here takes on a loaded machine. Reaching it means "never".
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// How much of a conversation is shown when a scenario fails.
const LINES_SHOWN: usize = 60;

/// A scenario ends with this where a client does not have what it is about, and says why.
pub(crate) struct Unsupported(pub(crate) String);

/// What came of a request, and when.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) came: Result<Value, Trouble>,
    pub(crate) at: Instant,
}

/// An error as adapters tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// One of those that the protocol knows.
    pub(crate) kind: String,
    /// The first word of the server's error; empty for what the server did not say.
    pub(crate) code: String,
    pub(crate) text: String,
}

#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) value: Value,
    pub(crate) at: Instant,
}

#[derive(Default)]
struct Seen {
    answers: HashMap<u64, Answer>,
    events: Vec<Event>,
    conversation: VecDeque<String>,
    ended: bool,
}

#[derive(Default)]
struct Inbox {
    seen: Mutex<Seen>,
    changed: Condvar,
}

/// A running adapter. It is killed when this is dropped.
pub(crate) struct Adapter {
    name: String,
    process: Mutex<Child>,
    requests: Mutex<Option<ChildStdin>>,
    inbox: Arc<Inbox>,
    next: AtomicU64,
}

impl Adapter {
    pub(crate) fn start(name: &str, command: &[String]) -> Arc<Self> {
        let (program, args) = command.split_first().unwrap();
        let mut process = Command::new(program)
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{program} cannot be run: {error}"));
        let inbox = Arc::new(Inbox::default());
        let (said, complained) = (process.stdout.take().unwrap(), process.stderr.take().unwrap());
        let (here, there) = (Arc::clone(&inbox), Arc::clone(&inbox));
        thread::spawn(move || here.read_answers(said));
        thread::spawn(move || there.read_complaints(complained));
        let requests = Mutex::new(process.stdin.take());
        let process = Mutex::new(process);
        Arc::new(Self { name: name.into(), process, requests, inbox, next: AtomicU64::new(1) })
    }

    /// Sends a request. Adapters work on all of them at the same time.
    pub(crate) fn ask(self: &Arc<Self>, what: &str, arguments: Value) -> Pending {
        let id = self.next.fetch_add(1, Relaxed);
        let mut request = arguments;
        request["id"] = json!(id);
        request["do"] = json!(what);
        let line = request.to_string();
        self.inbox.note("> ", &line);
        let asked = Instant::now();
        let mut requests = self.requests.lock().unwrap();
        // That it has ended is told by whoever waits for the answer.
        let _ = requests.as_mut().map(|requests| writeln!(requests, "{line}"));
        Pending { adapter: Arc::clone(self), id, asked }
    }

    /// The first event that is so, from the beginning on.
    #[track_caller]
    pub(crate) fn event(&self, what: &str, is_it: impl Fn(&Value) -> bool) -> Event {
        self.inbox.until(&format!("{}: the event {what}", self.name), |seen| {
            seen.events.iter().find(|event| is_it(&event.value)).cloned()
        })
    }

    pub(crate) fn has_told(&self, is_it: impl Fn(&Value) -> bool) -> bool {
        self.inbox.seen.lock().unwrap().events.iter().any(|event| is_it(&event.value))
    }

    /// Sends it a signal by name, as `kill` does.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.process.lock().unwrap().id();
        signal(process, name).unwrap_or_else(|what| panic!("{name} for {}: {what}", self.name));
    }

    /// Ends it without a word.
    pub(crate) fn kill(&self) {
        let mut process = self.process.lock().unwrap();
        let _ = process.kill();
        let _ = process.wait();
    }

    /// What was said of late, and what it complained of.
    pub(crate) fn conversation(&self) -> String {
        let seen = self.inbox.seen.lock().unwrap();
        let mut text = format!("--- {}, the last {} lines\n", self.name, seen.conversation.len());
        for line in &seen.conversation {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Inbox {
    fn read_answers(&self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            let at = Instant::now();
            self.note("< ", &line);
            let Ok(value) = serde_json::from_str::<Value>(&line) else { continue };
            let mut seen = self.seen.lock().unwrap();
            if value["event"].is_string() {
                seen.events.push(Event { value, at });
            } else if let Some(id) = value["id"].as_u64() {
                seen.answers.insert(id, Answer { came: outcome(&value), at });
            }
            self.changed.notify_all();
        }
        self.seen.lock().unwrap().ended = true;
        self.changed.notify_all();
    }

    fn read_complaints(&self, from: impl Read) {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            self.note("! ", &line);
        }
    }

    fn note(&self, mark: &str, line: &str) {
        let mut seen = self.seen.lock().unwrap();
        if seen.conversation.len() == LINES_SHOWN {
            seen.conversation.pop_front();
        }
        let line: String = line.chars().take(400).collect();
        seen.conversation.push_back(format!("{mark}{line}"));
    }

    #[track_caller]
    fn until<T>(&self, what: &str, probe: impl Fn(&Seen) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut seen = self.seen.lock().unwrap();
        loop {
            if let Some(found) = probe(&seen) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let (over, ended) = (left.is_zero(), seen.ended);
            if over || ended {
                drop(seen);
                panic!("{what} never came{}", if ended { ": the program has ended" } else { "" });
            }
            seen = self.changed.wait_timeout(seen, left).unwrap().0;
        }
    }
}

fn outcome(line: &Value) -> Result<Value, Trouble> {
    let Some(error) = line.get("error") else { return Ok(line["ok"].clone()) };
    let text = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
    Err(Trouble { kind: text("kind"), code: text("code"), text: text("text") })
}

/// A request that is under way.
pub(crate) struct Pending {
    adapter: Arc<Adapter>,
    id: u64,
    pub(crate) asked: Instant,
}

impl Pending {
    /// As `cancel` names it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.adapter.inbox.seen.lock().unwrap().answers.contains_key(&self.id)
    }

    #[track_caller]
    pub(crate) fn answer(&self) -> Answer {
        let what = format!("{}: the answer to request {}", self.adapter.name, self.id);
        let answer = self.adapter.inbox.until(&what, |seen| seen.answers.get(&self.id).cloned());
        if let Err(trouble) = &answer.came
            && trouble.kind == "unsupported"
        {
            panic_any(Unsupported(trouble.text.clone()));
        }
        answer
    }

    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        match self.answer().came {
            Ok(value) => value,
            Err(trouble) => {
                panic!("{}: request {} failed: {trouble:?}", self.adapter.name, self.id)
            }
        }
    }

    /// The error that it came to, and after how long.
    #[track_caller]
    pub(crate) fn error(&self) -> (Trouble, Duration) {
        let Answer { came, at } = self.answer();
        match came {
            Err(trouble) => (trouble, at.duration_since(self.asked)),
            Ok(value) => {
                panic!("{}: request {} did not fail: {value}", self.adapter.name, self.id)
            }
        }
    }
}
