//! What docs/clients.md puts around acquiring and releasing so that it looks like what others had before.

use super::address_of;
use super::around::scripts;
use super::recipe::Script;
use super::server;
use testkit::Server;

const LONG: u64 = 60_000;

const HEADINGS: [&str; 2] = ["Ask again and again", "In the shape that you have"];

fn says(script: &Script, expression: &str, server: &Server) -> String {
    script.program(&HEADINGS, expression, &address_of(server)).output()
}

/// What a program says whose random numbers are all this, and which says how long it took as well.
fn timed(script: &Script, chance: f64, expression: &str, server: &Server) -> (String, u64) {
    let expression = format!(
        "(async () => {{
            Math.random = () => {chance};
            const begun = performance.now();
            const came = await ({expression});
            return `${{came}} ${{Math.floor(performance.now() - begun)}}`;
        }})()"
    );
    let said = says(script, &expression, server);
    let (came, took) = said.trim_end().rsplit_once(' ').unwrap();
    (came.to_owned(), took.parse().unwrap())
}

#[test]
fn a_task_is_tried_again_with_growing_rests_and_then_done_under_the_lock() {
    for script in scripts() {
        let server = server();
        let mut client = server.client();
        let with = |expression| says(&script, expression, &server);
        assert_eq!(with("withDistributedLock('k', ({ fence }) => fence > 0)"), "true\n");
        assert_eq!((client.counter("releases"), client.counter("held")), (1, 0));

        client.grant("k", "alice", LONG);
        let task = "withDistributedLock('k', () => 'not reached')";
        let (came, took) = timed(&script, 0.0, task, &server);
        // Three rests: 100, 200 and 400 ms.
        assert!(came == "null" && took >= 700, "{came} {took}");
        assert_eq!(client.counter("tries_refused"), 4);
        let settings = "{ maxRetries: 1, baseDelayMs: 1, ttlMs: 1000 }";
        with(&format!("withDistributedLock('k', () => 'not reached', {settings})"));
        assert_eq!(client.counter("tries_refused"), 6);
    }
}

#[test]
fn a_callback_is_given_a_function_that_gives_the_lock_back_and_confirms_it() {
    for script in scripts() {
        let server = server();
        let mut client = server.client();
        let with = |settings: &str, callback: &str| {
            let expression = format!(
                "new Promise((told) => withExpiringLock('k', {settings}
                    (error, release) => {{ {callback} }}))"
            );
            says(&script, &expression, &server)
        };
        let confirms = "release((error, held) => told(`${error} ${held}`))";
        assert_eq!(with("", confirms), "null true\n");
        assert_eq!(client.counter("held"), 0);
        let late = format!("setTimeout(() => {confirms}, 100)");
        assert_eq!(with("{ lifetime: 30 },", &late), "null false\n");

        // No retry unless it is asked for.
        client.grant("k", "alice", LONG);
        let refused = "told(error.message)";
        assert_eq!(with("", refused), "k is locked\n");
        assert_eq!(client.counter("tries_refused"), 1);
        assert_eq!(with("{ maxRetries: 2 },", refused), "k is locked\n");
        assert_eq!(client.counter("tries_refused"), 4);
    }
}

#[test]
fn a_lock_that_expires_lasts_a_second_unless_it_is_told_otherwise() {
    for script in scripts() {
        let server = server();
        let mut client = server.client();
        for (settings, most) in [("", 1_000), ("{ lifetime: 5000 },", 5_000)] {
            let callback = "(error) => process.exit(error ? 1 : 0)";
            let expression =
                format!("new Promise(() => withExpiringLock('k', {settings} {callback}))");
            assert_eq!(says(&script, &expression, &server), "");
            let left = client.cmd("PTTL k");
            let redis::Value::Int(left) = left else { panic!("{left:?}") };
            // Where the program ends slowly nothing is left.
            assert!(left <= most && (left > most - 1_000 || left == -2), "{left} of {most}");
            client.cmd("DEL k");
        }
    }
}

#[test]
fn rests_have_jitter_and_grow_or_not() {
    for script in scripts() {
        let server = server();
        server.client().grant("k", "alice", LONG);
        // At least, in milliseconds: a timer may be a moment early.
        let rests = [
            (0.0, "{ ttl: 1000, growth: 1 }", 299),
            (1.0, "{ ttl: 1000, growth: 1 }", 599),
            (0.0, "{ ttl: 1000, delay: 20 }", 139),
            (1.0, "{ ttl: 1000, delay: 20 }", 279),
        ];
        for (chance, settings, least) in rests {
            let asks = format!("acquireWithRetries('k', {settings})");
            let (came, took) = timed(&script, chance, &asks, &server);
            assert!(came == "null" && took >= least, "{came} {took} of {least}");
        }
    }
}
