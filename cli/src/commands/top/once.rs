//! `--once`: one round, as tables or as JSON.

use super::model::{Model, State, Watched};
use super::rows::{Row, percent, rows, warnings};
use super::screen::figures::{NONE, count, fine, of_limit, time};
use super::told::Hold;
use super::view::View;
use super::watching::{News, watch};
use crate::connecting::Connection;
use crate::duration::in_millis;
use crate::exit_code::{Code, Failure};
use crate::output::{Json, print, print_table, printable};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// Longer than one reply may take.
const WITHIN: Duration = Duration::from_secs(6);
/// No second round.
const NEVER: Duration = Duration::from_secs(3_600);

pub(super) async fn run(
    places: &[Connection],
    view: &View,
    is_json: bool,
) -> Result<Code, Failure> {
    let mut model = Model::new(places.iter().map(Connection::name).collect());
    let (mut news, _wanted) = watch(places, NEVER);
    // A server that has not answered by then is shown as silent.
    let _ = timeout(WITHIN, hear_all(&mut model, &mut news, places.len())).await;
    let rows = rows(&model, view.sort, view.is_reversed, &view.filter, Instant::now());
    let is_answered = model.servers.iter().any(|server| server.round().is_some());
    if is_json {
        json(&model, &rows).print();
    } else if is_answered {
        tables(&model, &rows);
    }
    if is_answered {
        return Ok(Code::Done);
    }
    let silent = model.servers.iter().map(|server| format!("{}: {}", server.address, why(server)));
    let lost = model.lost().map(|(address, why)| format!("{address}: {why}"));
    let all: Vec<_> = lost.chain(silent).collect();
    let text = format!(
        "top: no server answers. {}. Start them, or name others by --url or LEASEHOLD_URL.",
        all.join(". ")
    );
    Err(Failure::new(Code::Unreachable, text))
}

/// Why nothing is known about the server.
fn why(server: &Watched) -> &str {
    match &server.state {
        State::Silent { why, .. } => why,
        State::Asked | State::Answers => "no answer in time",
    }
}

/// Returns when each server has answered or failed.
async fn hear_all(model: &mut Model, news: &mut UnboundedReceiver<News>, places: usize) {
    let mut known = BTreeSet::new();
    while known.len() < places || model.servers.iter().any(|server| server.state == State::Asked) {
        let Some(heard) = news.recv().await else { return };
        if let News::Servers { place, .. } | News::Lost { place, .. } = &heard {
            known.insert(*place);
        }
        model.hear(heard, Instant::now());
    }
}

fn tables(model: &Model, rows: &[Row<'_>]) {
    let head = ["SERVER", "WAITING", "P50", "P99", "GRANTS", "HANDOFFS", "CLIENTS", "MEMORY"];
    let servers: Vec<_> = model.servers.iter().map(server_row).collect();
    print_table(&head, &servers);
    let mut said = String::new();
    for (address, why) in model.lost() {
        said.push_str(&format!("! {address}: {}\n", printable(why)));
    }
    for server in &model.servers {
        if server.round().is_none() {
            said.push_str(&format!("! {}: down: {}\n", server.address, why(server)));
        }
        for warning in warnings(server) {
            said.push_str(&format!("! {}: {warning}\n", server.address));
        }
    }
    print(&said);
    if !rows.is_empty() {
        print("\n");
        let head = ["", "LOCK", "HOLDER", "HELD", "LEFT", "QUEUE", "WAITED", "WAITS", "SERVER"];
        let locks: Vec<_> = rows.iter().map(lock_row).collect();
        print_table(&head, &locks);
    }
    let part = model.part();
    if !part.is_all() {
        print(&format!(
            "A part: {} of {} keys were looked at, {} locks left out. leasehold ls lists all.\n",
            part.looked_at, part.keys, part.left_out
        ));
    }
    if !model.events.is_empty() {
        print("\n");
        let now = Instant::now();
        let events = model.events.iter().map(|seen| {
            let ago = seen.at.map(|at| now.saturating_duration_since(at));
            let event = &seen.event;
            vec![
                if event.is_loss() { "!" } else { "" }.to_owned(),
                time(ago),
                printable(&event.what),
                printable(&event.name),
                printable(&event.owner),
                time(event.millis.map(Duration::from_millis)),
                seen.address.clone(),
            ]
        });
        let events: Vec<_> = events.collect();
        print_table(&["", "AGO", "EVENT", "LOCK", "OWNER", "BY", "SERVER"], &events);
    }
}

fn server_row(server: &Watched) -> Vec<String> {
    let Some(round) = server.round() else {
        return vec![server.address.clone(), "DOWN".to_owned()];
    };
    let facts = &round.facts;
    let figures = if facts.module.is_some() {
        vec![
            of_limit(facts.waiters, facts.most_waiters),
            fine(facts.wait_p50),
            fine(facts.wait_p99),
            count(facts.grants),
            count(facts.hand_offs),
        ]
    } else {
        vec![NONE.to_owned(); 5]
    };
    let memory = percent(facts.memory, facts.most_memory);
    let mut row = vec![server.address.clone()];
    row.extend(figures);
    row.push(of_limit(facts.clients, facts.most_clients));
    row.push(memory.map_or(NONE.to_owned(), |percent| format!("{percent}%")));
    row
}

fn lock_row(row: &Row<'_>) -> Vec<String> {
    let (holder, left) = match &row.lock.hold {
        Hold::Held { hold, holders } => {
            let others = holders.saturating_sub(1);
            let owner = printable(&hold.owner);
            let owner = if others > 0 { format!("{owner} +{others}") } else { owner };
            (owner, row.left.map_or("no end".to_owned(), |left| time(Some(left))))
        }
        Hold::Free => ("(free)".to_owned(), NONE.to_owned()),
        Hold::Unknown(why) => (format!("({why})"), NONE.to_owned()),
    };
    vec![
        if row.is_stuck() { "!" } else { "" }.to_owned(),
        printable(&row.lock.name),
        holder,
        time(row.held),
        left,
        row.lock.waiters.map_or(NONE.to_owned(), count),
        time(row.waited),
        count(row.lock.contention.waits),
        row.server.to_owned(),
    ]
}

fn json(model: &Model, rows: &[Row<'_>]) -> Json {
    let lost = model.lost().map(|(address, why)| {
        Json::Object(vec![("address", Json::text(address)), ("error", Json::text(why))])
    });
    let servers = lost.chain(model.servers.iter().map(server_json)).collect();
    let events = model.events.iter().map(|seen| {
        let event = &seen.event;
        Json::Object(vec![
            ("server", Json::text(&seen.address)),
            ("id", Json::Number(event.id)),
            ("time", Json::Number(event.time)),
            ("event", Json::text(&event.what)),
            ("name", Json::text(&event.name)),
            ("owner", Json::text(&event.owner)),
            ("ms", Json::optional(event.millis)),
        ])
    });
    Json::Object(vec![
        ("servers", Json::List(servers)),
        ("locks", Json::List(rows.iter().map(lock_json).collect())),
        ("log", Json::List(events.collect())),
    ])
}

fn server_json(server: &Watched) -> Json {
    let address = ("address", Json::text(&server.address));
    let Some(round) = server.round() else {
        return Json::Object(vec![address, ("error", Json::text(why(server)))]);
    };
    let facts = &round.facts;
    let micros = |time: Duration| Json::Number(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    Json::Object(vec![
        address,
        ("error", Json::Null),
        ("server", Json::text(&facts.version)),
        ("module", facts.module.as_ref().map_or(Json::Null, Json::text)),
        ("role", Json::text(if facts.is_replica { "replica" } else { "primary" })),
        ("waiters", Json::Number(facts.waiters)),
        ("most_waiters", Json::optional(facts.most_waiters)),
        ("tickets", Json::Number(facts.tickets)),
        ("most_tickets", Json::optional(facts.most_tickets)),
        ("clients", Json::Number(facts.clients)),
        ("most_clients", Json::optional(facts.most_clients)),
        ("memory", Json::Number(facts.memory)),
        ("most_memory", Json::optional(facts.most_memory)),
        ("held", Json::Number(facts.held)),
        ("grants", Json::Number(facts.grants)),
        ("hand_offs", Json::Number(facts.hand_offs)),
        ("queue_full", Json::Number(facts.queue_full)),
        ("wait_us_p50", micros(facts.wait_p50)),
        ("wait_us_p99", micros(facts.wait_p99)),
        ("longest_wait_us", micros(facts.longest_wait)),
        ("quarantine_left_us", micros(facts.quarantine)),
        ("keys", Json::Number(round.part.keys)),
        ("keys_looked_at", Json::Number(round.part.looked_at)),
        ("locks_left_out", Json::Number(round.part.left_out)),
        ("warnings", Json::List(warnings(server).into_iter().map(Json::text).collect())),
    ])
}

fn lock_json(row: &Row<'_>) -> Json {
    let millis = |time: Option<Duration>| Json::optional(time.map(in_millis));
    let (owner, fence, holders, share) = match &row.lock.hold {
        Hold::Held { hold, holders } => {
            (Json::text(&hold.owner), Json::Number(hold.fence), *holders, hold.share)
        }
        Hold::Free | Hold::Unknown(_) => (Json::Null, Json::Null, 0, None),
    };
    let told = &row.lock.contention;
    Json::Object(vec![
        ("server", Json::text(row.server)),
        ("name", Json::text(&row.lock.name)),
        ("owner", owner),
        ("fence", fence),
        ("ttl", millis(row.left)),
        ("held", millis(row.held)),
        ("holders", Json::Number(holders)),
        ("share", Json::optional(share)),
        ("waiters", Json::optional(row.lock.waiters)),
        ("waited", millis(row.waited)),
        ("waits", Json::Number(told.waits)),
        ("refused", Json::Number(told.refused)),
        ("wait_total", Json::Number(in_millis(told.wait_total))),
        ("wait_longest", Json::Number(in_millis(told.wait_longest))),
        ("stuck", Json::Bool(row.is_stuck())),
    ])
}
