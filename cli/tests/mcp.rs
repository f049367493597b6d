//! Locks as tools. Messages are written and read as they are; the last test has a client of another make.

use crate::program::{Ended, Program};
use crate::scene::{
    LONG, both_kinds, eventually_free, eventually_held, eventually_waiting, held, hold, leasehold,
    left, server, start, url,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use testkit::{Server, announce, eventually, free_port};

/// A client of the protocol, and the program that it has started.
struct Client {
    program: Program,
    requests: u64,
}

impl Client {
    fn of(server: &Server) -> Self {
        Self::over(start(server, &["mcp"]))
    }

    fn over(program: Program) -> Self {
        let mut client = Self { program, requests: 0 };
        let who = json!({"name": "test", "version": "1"});
        let reply = client.request(
            "initialize",
            json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}),
        );
        assert_eq!(reply["result"]["serverInfo"]["name"], "leasehold");
        assert_eq!(reply["result"]["protocolVersion"], "2025-06-18");
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        client
    }

    fn send(&mut self, message: &Value) {
        self.program.types(&format!("{message}\n"));
    }

    /// Sends a request, and returns its number.
    fn ask(&mut self, method: &str, params: Value) -> u64 {
        self.requests += 1;
        let id = self.requests;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        id
    }

    fn reply(&self, id: u64) -> Value {
        eventually("the request is answered", || {
            let replies = messages(&self.program.printed());
            replies.into_iter().find(|reply| reply["id"] == id).ok_or(id)
        })
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.reply(id)
    }

    fn begin(&mut self, tool: &str, arguments: Value) -> u64 {
        self.ask("tools/call", json!({"name": tool, "arguments": arguments}))
    }

    /// The result of a tool.
    fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let id = self.begin(tool, arguments);
        self.result(id)
    }

    fn result(&self, id: u64) -> Value {
        let reply = self.reply(id);
        let result = &reply["result"];
        assert_eq!(result["isError"], false, "{reply}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), result["structuredContent"]);
        result["structuredContent"].clone()
    }

    /// What a tool says of its failure.
    fn fails(&mut self, tool: &str, arguments: Value) -> String {
        let id = self.begin(tool, arguments);
        let reply = self.reply(id);
        assert_eq!(reply["result"]["isError"], true, "{reply}");
        reply["result"]["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn acquire(&mut self, name: &str) -> u64 {
        let got = self.call("acquire", json!({"name": name, "ttl_seconds": 60}));
        assert_eq!(got["acquired"], true, "{got}");
        got["fence"].as_u64().unwrap()
    }

    fn cancel(&mut self, id: u64) {
        let params = json!({"requestId": id, "reason": "the user has stopped it"});
        let method = "notifications/cancelled";
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Closes the input; all that was printed must be messages of the protocol.
    fn ends(self) -> Ended {
        let ended = self.program.ends();
        assert_eq!(messages(&ended.printed).len(), ended.printed.lines().count());
        ended
    }
}

/// The whole lines so far.
fn messages(printed: &str) -> Vec<Value> {
    let whole = printed.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let message = |line: &str| {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
        message
    };
    whole.lines().map(message).collect()
}

#[test]
fn a_lock_is_taken_renewed_and_released_by_its_fence_and_refused_to_others() {
    for server in both_kinds() {
        let (mut one, mut other) = (Client::of(&server), Client::of(&server));
        let fence = one.acquire("x");
        let value = held(&server, "x").unwrap();
        assert!(value.starts_with(&format!("{fence:016}:")), "{value}");
        let refused = other.call("acquire", json!({"name": "x", "ttl_seconds": 60}));
        assert_eq!((&refused["acquired"], &refused["free"]), (&json!(false), &json!(false)));
        let by = &refused["held_by"];
        assert_eq!((&by["fence"], &by["is_this_session"]), (&json!(fence), &json!(false)));
        assert!(value.ends_with(by["owner"].as_str().unwrap()), "{value}");

        // Whoever knows the fence of another session can do nothing with it.
        let of_it = json!({"name": "x", "fence": fence});
        assert!(other.fails("release", of_it.clone()).contains("does not hold x"));
        let renewal = json!({"name": "x", "fence": fence, "ttl_seconds": 3600});
        assert!(other.fails("renew", renewal.clone()).contains("does not hold x"));
        assert!(left(&server, "x") <= Duration::from_secs(60));

        // Nor can its own with the fence of another grant.
        let earlier = json!({"name": "x", "fence": fence - 1});
        assert!(one.fails("release", earlier).contains("does not hold x"));

        let renewed = one.call("renew", renewal);
        assert_eq!((&renewed["renewed"], &renewed["fence"]), (&json!(true), &json!(fence)));
        assert!(left(&server, "x") > Duration::from_secs(3500));
        assert_eq!(one.call("info", json!({"name": "x"}))["held_by"]["is_this_session"], true);
        assert_eq!(one.call("release", of_it.clone())["released"], true);
        assert_eq!(held(&server, "x"), None);
        assert!(one.fails("release", of_it).contains("was released"));
        assert!(other.acquire("x") > fence);
    }
}

#[test]
fn callers_of_one_session_exclude_each_other() {
    let server = server();
    let mut client = Client::of(&server);
    let fence = client.acquire("x");
    let refused = client.call("acquire", json!({"name": "x", "ttl_seconds": 60}));
    assert_eq!(refused["acquired"], false);
    let by = &refused["held_by"];
    assert_eq!((&by["fence"], &by["is_this_session"]), (&json!(fence), &json!(true)));
    let waiting =
        client.begin("acquire", json!({"name": "x", "ttl_seconds": 60, "wait_seconds": 60}));
    eventually_waiting(&server, "x", 1);
    client.call("release", json!({"name": "x", "fence": fence}));
    let granted = client.result(waiting);
    assert_eq!(granted["acquired"], true);
    assert!(granted["fence"].as_u64() > Some(fence));
}

#[test]
fn a_wait_for_a_free_lock_takes_nothing() {
    for server in both_kinds() {
        let mut client = Client::of(&server);
        let wait = json!({"name": "x", "wait_seconds": 60});
        assert_eq!(client.call("wait", wait.clone())["free"], true);
        hold(&server, "x", "alice");
        let at_once = client.call("wait", json!({"name": "x", "wait_seconds": 0}));
        assert_eq!(
            (&at_once["free"], &at_once["held_by"]["owner"]),
            (&json!(false), &json!("alice"))
        );
        // Without the module it looks by GET and PTTL.
        let looks = || {
            let executed = server.client().executed();
            let count = |command| executed.get(command).copied().unwrap_or_default();
            count("lock.info") + count("pttl")
        };
        let before = looks();
        let waiting = client.begin("wait", wait);
        eventually("it has looked", || if looks() > before { Ok(()) } else { Err(()) });
        server.cmd("DEL x");
        assert_eq!(client.result(waiting)["free"], true);
        assert_eq!(held(&server, "x"), None);
    }
}

#[test]
fn a_cancelled_wait_leaves_the_queue_and_is_granted_nothing() {
    let server = server();
    server.client().grant("x", "alice", 10 * LONG);
    let mut client = Client::of(&server);
    let waiting =
        client.begin("acquire", json!({"name": "x", "ttl_seconds": 60, "wait_seconds": 600}));
    eventually_waiting(&server, "x", 1);
    client.cancel(waiting);
    eventually_waiting(&server, "x", 0);
    assert!(server.client().release("x", "alice"));
    assert_eq!(client.call("info", json!({"name": "x"}))["free"], true);
    let ended = client.ends();
    assert!(messages(&ended.printed).iter().all(|message| message["id"] != waiting));
}

#[test]
fn a_request_that_is_cancelled_when_it_was_answered_keeps_its_lock() {
    let server = server();
    let mut client = Client::of(&server);
    let granted = client.begin("acquire", json!({"name": "x", "ttl_seconds": 60}));
    let fence = client.result(granted)["fence"].clone();
    client.cancel(granted);
    let renewal = json!({"name": "x", "fence": fence, "ttl_seconds": 60});
    assert_eq!(client.call("renew", renewal)["renewed"], true);
}

#[test]
fn a_lease_that_is_not_renewed_ends_and_its_caller_is_told() {
    for server in both_kinds() {
        let mut client = Client::of(&server);
        let got = client.call("acquire", json!({"name": "x", "ttl_seconds": 1}));
        let fence = &got["fence"];
        eventually_held(&server, "x");
        eventually_free(&server, "x");
        let said = client.fails("renew", json!({"name": "x", "fence": fence, "ttl_seconds": 60}));
        assert!(said.contains("check what you changed"), "{said}");
        let said = client.fails("release", json!({"name": "x", "fence": fence}));
        assert!(said.contains("check what you changed"), "{said}");
        assert_eq!(held(&server, "x"), None);
    }
}

#[test]
fn a_lock_that_was_taken_away_is_an_error_of_renew_and_of_release() {
    for server in both_kinds() {
        let mut client = Client::of(&server);
        for (tool, ttl) in [("renew", json!(60)), ("release", Value::Null)] {
            let mut arguments = json!({"name": "x", "fence": client.acquire("x")});
            if !ttl.is_null() {
                arguments["ttl_seconds"] = ttl;
            }
            server.cmd("DEL x");
            hold(&server, "x", "alice");
            let said = client.fails(tool, arguments);
            assert!(said.contains("x was lost"), "{said}");
            assert!(held(&server, "x").unwrap().ends_with(":alice"));
            server.cmd("DEL x");
        }
    }
}

#[test]
fn when_its_input_is_closed_all_is_released_and_nothing_waits() {
    let server = server();
    server.client().grant("y", "alice", 10 * LONG);
    let mut client = Client::of(&server);
    client.acquire("x");
    client.begin("acquire", json!({"name": "y", "ttl_seconds": 60, "wait_seconds": 600}));
    client.begin("wait", json!({"name": "y", "wait_seconds": 600}));
    eventually_waiting(&server, "y", 1);
    let closed = Instant::now();
    let ended = client.ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
    // The protocol's library alone waits for five seconds.
    assert!(closed.elapsed() < Duration::from_secs(4), "{:?}", closed.elapsed());
    assert_eq!(held(&server, "x"), None);
    eventually_waiting(&server, "y", 0);
}

#[test]
fn a_signal_ends_it_while_its_input_is_open_and_all_is_released() {
    let server = server();
    let mut client = Client::of(&server);
    client.acquire("x");
    let ended = client.program.ends_by("TERM");
    assert_eq!((ended.code, ended.said.as_str()), (128 + 15, ""));
    assert_eq!(held(&server, "x"), None);
}

#[test]
fn wrong_arguments_are_refused_in_words_and_nothing_is_sent() {
    let server = server();
    let mut client = Client::of(&server);
    for (tool, arguments, words) in [
        ("acquire", json!({"name": "x", "ttl_seconds": 0}), "it must be 1 to 3600"),
        ("acquire", json!({"name": "x", "ttl_seconds": 3601}), "it must be 1 to 3600"),
        ("acquire", json!({"name": "x"}), "missing field `ttl_seconds`"),
        ("acquire", json!({"name": "x", "ttl": 5}), "unknown field `ttl`, expected one of `name`"),
        ("acquire", json!({"name": "", "ttl_seconds": 5}), "name: it must not be empty"),
        (
            "acquire",
            json!({"name": "x", "ttl_seconds": 5, "wait_seconds": 601}),
            "it must be 0 to 600",
        ),
        ("wait", json!({"name": "x", "wait_seconds": 601}), "it must be 0 to 600"),
        ("wait", json!({"name": "x", "wait_seconds": -1}), "invalid value"),
        ("renew", json!({"name": "x", "fence": 1, "ttl_seconds": 0}), "it must be 1 to 3600"),
        ("release", json!({"name": "x", "fence": "1"}), "invalid type"),
        ("info", json!({}), "missing field `name`"),
    ] {
        let said = client.fails(tool, arguments.clone());
        assert!(said.contains(words), "{tool} {arguments}: {said}");
    }
    let executed = server.client().executed();
    assert!(!executed.keys().any(|command| command.starts_with("lock.")), "{executed:?}");
    let reply = client.request("tools/call", json!({"name": "steal", "arguments": {}}));
    assert_eq!(reply["error"]["code"], -32602, "{reply}");
}

#[test]
fn a_server_that_cannot_be_reached_is_an_error_of_the_tool_and_it_says_what_to_do() {
    let mut command = leasehold(&url(free_port()), &["mcp"]);
    command.env("LEASEHOLD_RETRY_FOR_MS", "1").env("LEASEHOLD_UNREACHABLE_AFTER_MS", "1");
    let mut client = Client::over(Program::start(command));
    for (tool, arguments) in [
        ("acquire", json!({"name": "x", "ttl_seconds": 5})),
        ("wait", json!({"name": "x", "wait_seconds": 5})),
        ("info", json!({"name": "x"})),
    ] {
        let said = client.fails(tool, arguments);
        assert!(said.contains("Start the server, or name another one by --url"), "{said}");
    }
}

#[test]
fn what_is_not_the_protocol_ends_it_with_a_word_on_it() {
    let server = server();
    let mut program = start(&server, &["mcp"]);
    program.types("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    program.says("\n");
    let ended = program.ends();
    assert_eq!((ended.code, ended.printed.as_str()), (64, ""));
    let said = "leasehold: this is not the Model Context Protocol: ";
    assert!(ended.said.starts_with(said), "{}", ended.said);
    // Whoever closes it at once is told nothing.
    let ended = start(&server, &["mcp"]).ends();
    assert_eq!((ended.code, ended.said.as_str()), (0, ""));
}

#[test]
fn every_tool_and_argument_is_described_with_its_bounds() {
    let server = server();
    let mut client = Client::of(&server);
    let reply = client.request("tools/list", json!({}));
    let mut seen = Vec::new();
    for tool in reply["result"]["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        assert!(tool["description"].as_str().unwrap().len() > 60, "{name}");
        let schema = &tool["inputSchema"];
        assert_eq!(
            (&schema["type"], &schema["additionalProperties"]),
            (&json!("object"), &json!(false))
        );
        for (argument, of_it) in schema["properties"].as_object().unwrap() {
            assert!(of_it["description"].is_string(), "{name}: {argument}");
            let bounds = match argument.as_str() {
                "ttl_seconds" => (json!(1), json!(3600)),
                "wait_seconds" => (json!(0), json!(600)),
                _ => continue,
            };
            assert_eq!((&of_it["minimum"], &of_it["maximum"]), (&bounds.0, &bounds.1), "{name}");
        }
        let hints = &tool["annotations"];
        let is = |hint: &str| hints[hint].as_bool();
        assert_eq!(is("openWorldHint"), Some(false));
        seen.push((
            name.to_owned(),
            is("readOnlyHint"),
            is("idempotentHint"),
            is("destructiveHint"),
        ));
    }
    let (yes, no) = (Some(true), Some(false));
    let expected = [
        ("acquire", no, None, no),
        ("wait", yes, None, None),
        ("renew", no, yes, no),
        ("release", no, yes, no),
        ("info", yes, None, None),
    ];
    assert_eq!(seen, expected.map(|(name, a, b, c)| (name.to_owned(), a, b, c)));
}

/// A session on the page has `who: tool {arguments}`, each with a server of its own, and below each call its result.
#[test]
fn the_session_on_the_page_comes_out_as_written() {
    let page = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    let section = page.split("## Locks as tools\n").nth(1).unwrap();
    let block = section.split("```\n").find(|block| block.contains(": acquire ")).unwrap();
    let (server, mut clients) = (server(), BTreeMap::new());
    let lines: Vec<_> = block.lines().collect();
    let mut fences: BTreeMap<u64, Value> = BTreeMap::new();
    for call in lines.chunks(2) {
        let (who, asked) = call[0].split_once(": ").unwrap();
        let (tool, arguments) = asked.split_once(' ').unwrap();
        let mut arguments: Value = serde_json::from_str(arguments).unwrap();
        if let Some(fence) = arguments.get_mut("fence") {
            *fence = fences[&fence.as_u64().unwrap()].clone();
        }
        let client = clients.entry(who).or_insert_with(|| Client::of(&server));
        let result = client.call(tool, arguments);
        assert_shows(&serde_json::from_str(call[1]).unwrap(), &result, &mut fences);
    }
    assert!(lines.len() > 8, "this test no longer understands the page");
}

/// Compares all but what differs from run to run. A fence stands for the same one everywhere on the page.
fn assert_shows(shown: &Value, result: &Value, fences: &mut BTreeMap<u64, Value>) {
    let (Some(shown), Some(result)) = (shown.as_object(), result.as_object()) else {
        return assert_eq!(shown, result);
    };
    assert!(shown.keys().eq(result.keys()), "{shown:?} {result:?}");
    for (name, shown) in shown {
        match name.as_str() {
            "fence" => {
                let of_it = fences.entry(shown.as_u64().unwrap()).or_insert(result[name].clone());
                assert_eq!(*of_it, result[name]);
            }
            "deadline" => assert!(result[name].is_u64()),
            "owner" => assert!(result[name].is_string()),
            // The machine may be slow.
            "seconds_left" => assert!(result[name].as_u64() <= shown.as_u64()),
            "waited_seconds" => assert!(result[name].as_u64() >= shown.as_u64()),
            _ => assert_shows(shown, &result[name], fences),
        }
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The client of the protocol that its authors have for Python.
const PYTHON_CLIENT: &str = "mcp==2.3.0";

/// Its Python, in an environment of its own; none where the package cannot be had.
fn python_with_a_client() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("mcp-client");
    let (python, stamp) = (folder.join("bin/python"), folder.join("installed"));
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == PYTHON_CLIENT) {
        return Some(python);
    }
    let has = |command: &mut Command| command.output().is_ok_and(|told| told.status.success());
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", PYTHON_CLIENT];
    if !has(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        || !has(Command::new(&python).args(pip))
    {
        announce(&format!("skipped: there is no {PYTHON_CLIENT} to be had by pip for python3"));
        return None;
    }
    fs::write(stamp, PYTHON_CLIENT).unwrap();
    Some(python)
}

#[test]
fn a_client_of_another_make_takes_waits_cancels_and_leaves() {
    let Some(python) = python_with_a_client() else { return };
    let server = server();
    server.client().grant("y", "alice", 10 * LONG);
    let program = leasehold(&url(server.port()), &["mcp"]);
    let mut story = Command::new(python);
    story.arg(root().join("cli/tests/mcp_client.py")).arg(program.get_program());
    story.env("LEASEHOLD_URL", url(server.port()));
    let mut story = Program::start(story);
    assert!(
        story.prints("waiting\n").starts_with("acquire info release renew wait\nacquired True\n")
    );
    eventually_held(&server, "x");
    eventually_waiting(&server, "y", 1);
    story.types("\n");
    story.prints("cancelled\n");
    eventually_waiting(&server, "y", 0);
    story.types("\n");
    let ended = story.ends();
    assert_eq!(ended.code, 0, "{}", ended.said);
    assert_eq!(held(&server, "x"), None);
}
