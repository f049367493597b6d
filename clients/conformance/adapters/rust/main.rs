//! The Rust crate, as the driver of the conformance scenarios talks to it: one JSON object a line.
//!
//! All runs on one thread, so that `block` keeps the crate from doing anything too.

mod given;
mod steps;

use given::{bytes_of, options, server, settings};
use leasehold_client::{Detached, Error, Guard, Locks, Loss, Released, Request};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, LocalSet, spawn_local};

/// An error as the protocol tells it.
struct Trouble {
    kind: &'static str,
    code: String,
    text: String,
}

type Answer = Result<Value, Trouble>;

/// A lease, and why it was lost: a guard that was released is gone.
struct Held {
    guard: Option<Rc<Guard>>,
    loss: Option<Loss>,
}

/// How work ends: with a result, or with an error.
type End = Result<String, String>;

#[derive(Default)]
struct Adapter {
    locks: RefCell<Option<Locks>>,
    leases: RefCell<HashMap<String, Held>>,
    works: RefCell<HashMap<String, oneshot::Sender<End>>>,
    tasks: RefCell<HashMap<u64, AbortHandle>>,
}

fn write(line: &Value) {
    let mut out = std::io::stdout().lock();
    // The driver has ended: nobody reads it.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn text<'v>(request: &'v Value, field: &str) -> &'v str {
    request.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn number(request: &Value, field: &str) -> Option<u64> {
    request.get(field).and_then(Value::as_u64)
}

fn duration(request: &Value, field: &str) -> Option<Duration> {
    number(request, field).map(Duration::from_millis)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn unsupported(text: &str) -> Trouble {
    Trouble { kind: "unsupported", code: String::new(), text: text.into() }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let (kind, code) = match error {
            Error::Setting { .. } => ("setting", ""),
            Error::Busy { .. } => ("busy", ""),
            Error::Unreachable { .. } => ("unreachable", ""),
            Error::TooLate { .. } => ("too late", ""),
            Error::Lost { .. } => ("lost", ""),
            Error::Closed => ("closed", ""),
            Error::Unanswered { .. } => ("unanswered", ""),
            Error::TooFewReplicas { .. } => ("too few replicas", ""),
            Error::Refused { source } => {
                // The redis crate does not pass on the server's words about a password.
                let is_password = source.kind() == redis::ErrorKind::AuthenticationFailed;
                let code = source.code().unwrap_or(if is_password { "WRONGPASS" } else { "" });
                let kind = match code {
                    "WRONGPASS" | "NOAUTH" => "wrong password",
                    "NOPERM" => "not permitted",
                    "OOM" => "out of memory",
                    "READONLY" => "read only",
                    "QUEUEFULL" => "queue full",
                    "WRONGTYPE" => "wrong type",
                    "SHARE" => "needs the module",
                    _ => "refused",
                };
                return Self { kind, code: code.to_owned(), text };
            }
            _ => ("another", ""),
        };
        Self { kind, code: code.into(), text }
    }
}

fn name_of_loss(loss: Loss) -> &'static str {
    match loss {
        Loss::Expired => "expired",
        Loss::Taken => "taken",
        Loss::Released => "released",
        Loss::Closed => "closed",
        _ => "another",
    }
}

fn name_of_release(released: Released) -> &'static str {
    match released {
        Released::InTime => "released",
        Released::Late => "late",
        Released::Later => "later",
        _ => "another",
    }
}

impl Adapter {
    fn locks(&self) -> Result<Locks, Trouble> {
        self.locks.borrow().clone().ok_or(unsupported("nothing is open"))
    }

    async fn answer(self: &Rc<Self>, what: &str, request: &Value) -> Answer {
        match what {
            "open" => self.open(request),
            "acquire" => self.acquire(request).await,
            "try" => self.try_now(request).await,
            "run" => self.run(request).await,
            "finish" => Ok(self.finish(request)),
            "cancel" => Ok(self.cancel(request)),
            "state" => Ok(self.state(text(request, "lease"))),
            "block" => {
                std::thread::sleep(duration(request, "for").unwrap_or_default());
                Ok(self.state(text(request, "lease")))
            }
            "extend" => self.extend(request).await,
            "release" => self.release(request).await,
            "extend_by" => self.extend_by(request).await,
            "upgrade" | "downgrade" => self.change(what, request).await,
            "guard" => self.run_command(request).await,
            "detach" => self.detach(request),
            "adopt" => self.adopt(request).await,
            "info" => self.info(request).await,
            "holders" | "waiters" | "top" | "log" => self.list(what, text(request, "name")).await,
            "observe" => self.observe(request),
            "events" => {
                // Whoever is told already goes on being told.
                let _ = tracing::subscriber::set_global_default(steps::Steps(write));
                Ok(json!({}))
            }
            "campaign" => self.campaign(request).await,
            "resign" => self.release(request).await,
            "leader" => self.leader(request).await,
            "close" => self.close(request).await,
            _ => Err(unsupported("that is not known")),
        }
    }

    fn open(&self, request: &Value) -> Answer {
        // As a program that starts before its server: what is wrong is told by the first request.
        let locks = Locks::with_settings(server(request)?, settings(request))?;
        *self.locks.borrow_mut() = Some(locks);
        Ok(json!({}))
    }

    fn request(&self, request: &Value) -> Result<Request, Trouble> {
        let locks = self.locks()?;
        let name = match request.get("name_hex").and_then(Value::as_str) {
            Some(hex) => bytes_of(hex),
            None => text(request, "name").as_bytes().to_vec(),
        };
        let asked = match text(request, "mode") {
            "read" => locks.read(name),
            "semaphore" => {
                let permits = number(request, "permits").unwrap_or_default();
                locks.semaphore(name, u32::try_from(permits).unwrap_or_default())
            }
            _ => match request.get("also").and_then(Value::as_array) {
                Some(also) => {
                    let also =
                        also.iter().filter_map(Value::as_str).map(|name| name.as_bytes().to_vec());
                    locks.all([name].into_iter().chain(also))
                }
                None => locks.lock(name),
            },
        };
        options(asked, request)
    }

    async fn acquire(self: &Rc<Self>, request: &Value) -> Answer {
        let guard = self.request(request)?.await?;
        Ok(self.held(text(request, "lease"), guard))
    }

    async fn try_now(self: &Rc<Self>, request: &Value) -> Answer {
        Ok(match self.request(request)?.try_now().await? {
            Some(guard) => self.held(text(request, "lease"), guard),
            None => json!({ "held": false }),
        })
    }

    fn held(self: &Rc<Self>, lease: &str, guard: Guard) -> Value {
        let guard = Rc::new(guard);
        let answer = json!({
            "held": true,
            "fence": guard.fence().to_string(),
            "owner": guard.owner(),
            "valid_for": millis(guard.valid_for()),
        });
        let held = Held { guard: Some(Rc::clone(&guard)), loss: None };
        self.leases.borrow_mut().insert(lease.into(), held);
        let (adapter, name) = (Rc::clone(self), lease.to_owned());
        // It must not keep the guard: a release takes it.
        let cancellation = guard.cancellation();
        drop(guard);
        spawn_local(async move {
            cancellation.cancelled().await;
            let guard = adapter.leases.borrow().get(&name).and_then(|held| held.guard.clone());
            if let Some(loss) = guard.and_then(|guard| guard.loss()) {
                tell_of_loss(&name, loss);
            }
        });
        answer
    }

    /// Works until it is told to end.
    async fn run(&self, request: &Value) -> Answer {
        let asked = self.request(request)?;
        let lease = text(request, "lease");
        let (end, ended) = oneshot::channel();
        self.works.borrow_mut().insert(lease.into(), end);
        let work = async |guard: &Guard| {
            let fence = guard.fence().to_string();
            write(&json!({ "event": "working", "lease": lease, "fence": fence }));
            ended.await
        };
        match asked.run(work).await {
            Ok(Ok(Ok(result))) => Ok(json!({ "result": result })),
            Ok(Ok(Err(text))) => Err(Trouble { kind: "work", code: String::new(), text }),
            Ok(Err(_)) => Err(unsupported("the driver forgot the work")),
            Err(error @ Error::Lost { loss, .. }) => {
                tell_of_loss(lease, loss);
                Err(error.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn finish(&self, request: &Value) -> Value {
        let end = match request.get("error").and_then(Value::as_str) {
            Some(error) => Err(error.to_owned()),
            None => Ok(text(request, "result").to_owned()),
        };
        if let Some(work) = self.works.borrow_mut().remove(text(request, "lease")) {
            // Work under a lock that was lost has been stopped.
            let _ = work.send(end);
        }
        json!({})
    }

    fn cancel(&self, request: &Value) -> Value {
        let id = number(request, "request").unwrap_or_default();
        if let Some(task) = self.tasks.borrow_mut().remove(&id) {
            task.abort();
        }
        json!({})
    }

    fn guard(&self, lease: &str) -> Option<Rc<Guard>> {
        self.leases.borrow().get(lease).and_then(|held| held.guard.clone())
    }

    /// The guard itself, which a release takes.
    fn take(&self, request: &Value) -> Option<Guard> {
        let mut leases = self.leases.borrow_mut();
        let held = leases.get_mut(text(request, "lease"))?;
        let guard = held.guard.take()?;
        held.loss = guard.loss().or(Some(Loss::Released));
        Rc::into_inner(guard)
    }

    fn state(&self, lease: &str) -> Value {
        let leases = self.leases.borrow();
        let held = leases.get(lease);
        let guard = held.and_then(|held| held.guard.as_ref());
        let loss = match guard {
            Some(guard) => guard.loss(),
            None => held.and_then(|held| held.loss),
        };
        let valid_for = guard.map(|guard| guard.valid_for()).unwrap_or_default();
        json!({ "valid_for": millis(valid_for), "loss": loss.map(name_of_loss) })
    }

    async fn extend(&self, request: &Value) -> Answer {
        let ttl = duration(request, "ttl").unwrap_or_default();
        match self.guard(text(request, "lease")) {
            Some(guard) => Self::extended(guard.extend(ttl).await),
            None => Ok(json!({ "outcome": "lost" })),
        }
    }

    async fn extend_by(&self, request: &Value) -> Answer {
        let more = duration(request, "by").unwrap_or_default();
        match self.guard(text(request, "lease")) {
            Some(guard) => Self::extended(guard.extend_by(more).await),
            None => Ok(json!({ "outcome": "lost" })),
        }
    }

    fn extended(outcome: Result<(), Error>) -> Answer {
        match outcome {
            Ok(()) => Ok(json!({ "outcome": "extended" })),
            Err(Error::Lost { .. }) => Ok(json!({ "outcome": "lost" })),
            Err(error) => Err(error.into()),
        }
    }

    async fn change(&self, what: &str, request: &Value) -> Answer {
        let guard = self.guard(text(request, "lease")).ok_or(unsupported("it is released"))?;
        let is_changed = match what {
            "upgrade" => guard.upgrade().await?,
            _ => guard.downgrade().await?,
        };
        Ok(json!({ "held": is_changed, "fence": guard.fence().to_string() }))
    }

    async fn run_command(&self, request: &Value) -> Answer {
        let guard = self.guard(text(request, "lease")).ok_or(unsupported("it is released"))?;
        let words = request.get("command").and_then(Value::as_array).into_iter().flatten();
        let mut command = redis::Cmd::new();
        words.filter_map(Value::as_str).for_each(|word| {
            command.arg(word);
        });
        let reply = match guard.run_command::<redis::Value>(&command).await? {
            redis::Value::Int(number) => json!(number),
            redis::Value::BulkString(bytes) => json!(String::from_utf8_lossy(&bytes)),
            redis::Value::SimpleString(text) => json!(text),
            redis::Value::Okay => json!("OK"),
            redis::Value::Nil => Value::Null,
            other => json!(format!("{other:?}")),
        };
        Ok(json!({ "reply": reply }))
    }

    fn detach(&self, request: &Value) -> Answer {
        let guard = self.take(request).ok_or(unsupported("a guard is detached once"))?;
        Ok(json!({ "text": guard.detach().to_string() }))
    }

    async fn adopt(self: &Rc<Self>, request: &Value) -> Answer {
        let detached: Detached = text(request, "text").parse()?;
        let guard = self.locks()?.adopt(&detached).await?;
        Ok(self.held(text(request, "lease"), guard))
    }

    async fn list(&self, what: &str, name: &str) -> Answer {
        let locks = self.locks()?;
        Ok(match what {
            "holders" => (locks.holders(name).await?.iter())
                .map(|each| json!({ "owner": each.owner, "fence": each.fence.to_string() }))
                .collect(),
            "waiters" => locks
                .waiters(name)
                .await?
                .iter()
                .map(|each| json!({ "owner": each.owner }))
                .collect(),
            "top" => (locks.top().await?.iter())
                .map(|each| json!({ "name": each.name, "waits": each.waits }))
                .collect(),
            _ => (locks.log().await?.iter())
                .map(|each| json!({ "name": each.name, "event": each.event }))
                .collect(),
        })
    }

    fn observe(&self, request: &Value) -> Answer {
        let observer = text(request, "observer").to_owned();
        let mut leaders = self.locks()?.election(text(request, "name"), "nobody").observe();
        spawn_local(async move {
            while let Ok(leader) = leaders.next().await {
                let (candidate, fence) =
                    leader.map(|leader| (leader.candidate, leader.fence.to_string())).unzip();
                write(&json!({
                    "event": "leader", "observer": observer, "candidate": candidate, "fence": fence,
                }));
            }
        });
        Ok(json!({}))
    }

    async fn release(&self, request: &Value) -> Answer {
        let guard = self.take(request).ok_or(unsupported("a guard is released once"))?;
        Ok(json!({ "outcome": name_of_release(guard.release().await?) }))
    }

    async fn info(&self, request: &Value) -> Answer {
        let info = self.locks()?.info(text(request, "name")).await?;
        Ok(info.map_or(Value::Null, |info| {
            json!({
                "holder": info.holder,
                "fence": info.fence.to_string(),
                "holders": info.holders,
                "waiters": info.waiters,
            })
        }))
    }

    async fn campaign(self: &Rc<Self>, request: &Value) -> Answer {
        let election = self.locks()?.election(text(request, "name"), text(request, "candidate"));
        let guard = options(election.campaign(), request)?.await?;
        Ok(self.held(text(request, "lease"), guard))
    }

    async fn leader(&self, request: &Value) -> Answer {
        let leader = self.locks()?.election(text(request, "name"), "nobody").leader().await?;
        Ok(leader.map_or(
            Value::Null,
            |leader| json!({ "candidate": leader.candidate, "fence": leader.fence.to_string() }),
        ))
    }

    async fn close(&self, request: &Value) -> Answer {
        let limit = duration(request, "limit").unwrap_or_default();
        let left = self.locks()?.close(limit).await;
        Ok(json!({ "left": left }))
    }
}

fn tell_of_loss(lease: &str, loss: Loss) {
    write(&json!({ "event": "lost", "lease": lease, "loss": name_of_loss(loss) }));
}

async fn read_requests() {
    let adapter = Rc::new(Adapter::default());
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(request) = serde_json::from_str::<Value>(&line) else { continue };
        let id = number(&request, "id").unwrap_or_default();
        let asked = Rc::clone(&adapter);
        let task = spawn_local(async move {
            let answer = asked.answer(text(&request, "do"), &request).await;
            asked.tasks.borrow_mut().remove(&id);
            answer
        });
        adapter.tasks.borrow_mut().insert(id, task.abort_handle());
        spawn_local(async move {
            let answer = task.await.unwrap_or_else(|ended| {
                let kind = if ended.is_cancelled() { "cancelled" } else { "another" };
                Err(Trouble { kind, code: String::new(), text: ended.to_string() })
            });
            write(&match answer {
                Ok(ok) => json!({ "id": id, "ok": ok }),
                Err(Trouble { kind, code, text }) => {
                    json!({ "id": id, "error": { "kind": kind, "code": code, "text": text } })
                }
            });
        });
    }
}

fn main() -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(read_requests()));
    Ok(())
}
