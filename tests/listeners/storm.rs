//! Anything that makes somebody listen, at random, under load.

use super::joining::{primary, set, wait_until_linked, ways};
use super::load::{Holdings, Load, assert_same};
use super::{counted_at_once, is_always_told, wait_until_nobody_listens};
use redis::Value;
use std::time::{Duration, Instant};
use std::{env, thread};
use testkit::{Seed, Server, becomes, figure, server_name, short_or_long, wait_until_in_sync};

/// How many servers there are, each with the module.
const SERVERS: usize = 3;

/// The most things that happen before all servers begin anew.
const STEPS: usize = 3;

/// Longer than the module takes to find that nobody listens.
const QUIET_MILLIS: usize = 250;

struct Storm {
    seed: Seed,
    servers: Vec<Server>,
    primary: usize,
    load: Load,
    happened: Vec<String>,
}

impl Storm {
    fn begin(seed: &mut Seed) -> Self {
        let starting = [(); SERVERS].map(|()| thread::spawn(|| primary().start()));
        let servers: Vec<_> = starting.into_iter().map(|server| server.join().unwrap()).collect();
        let load = Load::on(&servers[0]);
        Self { seed: seed.fork(), servers, primary: 0, load, happened: Vec::new() }
    }

    /// Mostly it is so long before anything happens that nobody is told of changes.
    fn begin_quietly(&mut self) {
        if self.seed.below(4) > 0 && !is_always_told() {
            wait_until_nobody_listens(self.primary());
            self.pause(20);
        } else {
            self.pause(QUIET_MILLIS);
        }
    }

    fn primary(&self) -> &Server {
        &self.servers[self.primary]
    }

    fn note(&mut self, what: impl Into<String>) {
        self.happened.push(what.into());
    }

    fn pause(&mut self, most_millis: usize) {
        let millis = self.seed.below(most_millis);
        let over = Instant::now() + Duration::from_millis(millis.try_into().unwrap());
        let client = &mut self.primary().client();
        while Instant::now() < over {
            client.cmd("PING");
        }
    }

    fn compare(&self) {
        let story = self.happened.join("; ");
        for (index, server) in self.servers.iter().enumerate() {
            let follows = server.client().info_field("replication", "role").unwrap() == "slave";
            if index != self.primary && follows {
                wait_until_linked(server);
                self.load.paused(|| assert_same(self.primary(), server, &story));
            }
        }
    }

    /// One of the others begins to follow the primary, in one of the ways, or another replica of it, if there is one.
    fn join(&mut self) {
        let mut ways = ways();
        // The one that waits for a second is as good as the others in one case of four.
        ways.retain(|way| way.name != "sockets, later" || self.seed.below(4) == 0);
        let way = ways.swap_remove(self.seed.below(ways.len()));
        let index = (self.primary + 1 + self.seed.below(SERVERS - 1)) % SERVERS;
        let other = SERVERS - self.primary - index;
        let is_chained = self.seed.below(4) == 0
            && self.servers[other].client().info_field("replication", "master_link_status")
                == Some("up".to_owned());
        self.note(format!(
            "{index} joins by {}{}",
            way.name,
            if is_chained { ", chained" } else { "" }
        ));
        let (above, replica) =
            (if is_chained { other } else { self.primary }, &self.servers[index]);
        let circle = replica.client().info_field("replication", "master_port");
        if circle.as_deref() == Some(&self.servers[above].port().to_string()) {
            return;
        }
        set(&self.servers[above], way.primary);
        set(replica, way.replica);
        replica.promote();
        replica.follow(&self.servers[above]);
        if is_chained {
            // What followed this one goes where it went.
            self.servers[other].follow(self.primary());
        }
        wait_until_linked(&self.servers[index]);
    }

    fn leave(&mut self) {
        self.note("all leave");
        for (index, server) in self.servers.iter().enumerate() {
            if index != self.primary {
                server.promote();
            }
        }
        if self.seed.below(2) == 0 {
            self.note("for long");
            becomes("the backlog is freed", 0, || {
                self.primary().client().info_number("replication", "repl_backlog_active")
            });
        }
    }

    fn promote(&mut self) {
        let index = (self.primary + 1 + self.seed.below(SERVERS - 1)) % SERVERS;
        let replica = &self.servers[index];
        let field = |name| replica.client().info_field("replication", name);
        if field("master_link_status").as_deref() != Some("up") {
            return;
        }
        let old = self.primary;
        self.load.moved(|| {
            wait_until_in_sync(&self.servers[old], replica);
            replica.promote();
            replica.socket()
        });
        self.primary = index;
        self.note(format!("{index} is promoted"));
        for (other, server) in self.servers.iter().enumerate() {
            if other != index {
                server.follow(self.primary());
            }
        }
    }

    fn file(&mut self, is_on: bool) {
        let setting = if is_on { "appendonly yes" } else { "appendonly no" };
        self.note(setting);
        set(self.primary(), &["appendfsync no", setting]);
    }

    fn save(&mut self) {
        let command = ["SAVE", "BGSAVE"][self.seed.below(2)];
        self.note(command);
        // It may be saving already.
        self.primary().cmd(command);
    }

    /// From the file, or from a save of this moment.
    fn restart(&mut self) {
        if self.primary().cmd("CONFIG REWRITE") != Value::Okay {
            return;
        }
        let primary = self.primary;
        let story = &self.happened;
        let servers = &mut self.servers;
        self.load.moved(|| {
            let server = &mut servers[primary];
            if !server.client().wait_until_saved().contains("aof_enabled:1") {
                assert_eq!(server.cmd("SAVE"), Value::Okay);
            }
            let before = Holdings::of(server);
            server.kill();
            server.start_again();
            let story = format!("{}; restart", story.join("; "));
            before.assert_same(&Holdings::of(server), &story);
            server.socket()
        });
        self.note("restart");
    }

    fn step(&mut self) {
        match self.seed.below(12) {
            0..5 => self.join(),
            5 => self.leave(),
            6..8 => self.promote(),
            8 => self.file(true),
            9 => self.file(false),
            10 => self.save(),
            _ => self.restart(),
        }
        if self.seed.below(2) == 0 {
            self.pause(50);
        }
        self.compare();
    }
}

#[test]
fn whatever_begins_to_listen_under_load_misses_no_change() {
    let mut seed = Seed::announced();
    let seconds = env::var("LEASEHOLD_LISTENERS_SECONDS").ok().map(|text| text.parse().unwrap());
    let lasts = Duration::from_secs(seconds.unwrap_or(short_or_long(15, 600)));
    let begin = Instant::now();
    let (mut answered, mut rounds, mut steps, mut untold) = (0, 0, 0, 0);
    while begin.elapsed() < lasts {
        let mut storm = Storm::begin(&mut seed);
        storm.begin_quietly();
        for _ in 0..=storm.seed.below(STEPS) {
            untold += u64::from(counted_at_once(&mut storm.primary().client()) == 0);
            storm.step();
            steps += 1;
        }
        rounds += 1;
        answered += storm.load.finish();
    }
    let rate = answered / begin.elapsed().as_secs().max(1);
    figure(&format!(
        "{}: {steps} steps in {rounds} rounds, {untold} of them where nobody was told; {answered} commands, {rate} a second",
        server_name()
    ));
    assert!(steps > 0);
}
