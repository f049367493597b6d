//! Whatever clients send, the server lives, every reply has its shape, and replicas agree.

mod words;

use redis::Value;
use testkit::{
    Client, Seed, Server, Snapshot, eventually, figure, short_or_long, start_pair,
    wait_until_in_sync,
};

/// So many connections send requests that wait, and never look at what they are told.
const DEAF: usize = 16;

const SCRIPT: &str = "return redis.pcall(unpack(ARGV))";

type Command = Vec<Vec<u8>>;

struct Attack {
    seed: Seed,
    server: Server,
    /// One that speaks RESP2, and one that speaks RESP3.
    clients: [Client; 2],
    deaf: Vec<Client>,
    dumped: Vec<u8>,
    sent: usize,
}

impl Attack {
    fn on(server: Server, seed: Seed) -> Self {
        let clients = [server.client(), server.client_resp3()];
        let deaf = (0..DEAF).map(|_| server.client()).collect();
        Self { seed, server, clients, deaf, dumped: Vec::new(), sent: 0 }
    }

    fn goes_on(&mut self) {
        match self.seed.below(20) {
            0..=5 => self.strangers_turn(),
            6 | 7 => self.waits(),
            8 | 9 => self.in_a_transaction(),
            10 => self.in_a_script(),
            11 => self.looks_at_figures(),
            _ => self.asks(),
        }
    }

    fn client(&mut self) -> &mut Client {
        let which = self.seed.below(self.clients.len());
        &mut self.clients[which]
    }

    fn send(&mut self, command: &Command) -> Value {
        self.sent += 1;
        let command = command.clone();
        self.client().cmd(command)
    }

    fn asks(&mut self) {
        let command = words::lock_command(&mut self.seed);
        if words::may_wait(&command) {
            return self.waits_for(command);
        }
        let reply = self.send(&command);
        assert_shape(&command, &reply);
    }

    fn strangers_turn(&mut self) {
        let key = words::key(&mut self.seed);
        if let Value::BulkString(dumped) = self.send(&vec![b"DUMP".to_vec(), key]) {
            self.dumped = dumped;
        }
        let command = words::strange(&mut self.seed, &self.dumped);
        self.send(&command);
    }

    fn waits(&mut self) {
        let command = words::patient(&mut self.seed);
        self.waits_for(command);
    }

    /// On a connection that may be waiting already, or end while it does.
    fn waits_for(&mut self, command: Command) {
        let at = self.seed.below(DEAF);
        if self.seed.below(3) == 0 {
            self.deaf[at] = self.server.client();
        }
        self.sent += 1;
        self.deaf[at].send(command);
    }

    fn in_a_transaction(&mut self) {
        let which = self.seed.below(self.clients.len());
        let mut commands = Vec::new();
        self.clients[which].cmd("MULTI");
        for _ in 0..=self.seed.below(4) {
            let command = match self.seed.below(4) {
                0 => words::strange(&mut self.seed, &self.dumped),
                1 => words::patient(&mut self.seed),
                _ => words::lock_command(&mut self.seed),
            };
            let queued = self.clients[which].cmd(command.clone());
            if matches!(&queued, Value::SimpleString(queued) if queued == "QUEUED") {
                commands.push(command);
            }
        }
        self.sent += 2 + commands.len();
        match self.clients[which].cmd("EXEC") {
            Value::Array(replies) => {
                assert_eq!(replies.len(), commands.len());
                commands.iter().zip(&replies).for_each(|(command, reply)| {
                    if command[0].to_ascii_lowercase().starts_with(b"lock.") {
                        assert_shape(command, reply);
                    }
                });
            }
            Value::ServerError(error) => assert_eq!(error.code(), "EXECABORT"),
            other => panic!("EXEC of {commands:?}: {other:?}"),
        }
    }

    fn in_a_script(&mut self) {
        let command = if self.seed.below(3) == 0 {
            words::patient(&mut self.seed)
        } else {
            words::lock_command(&mut self.seed)
        };
        let head = ["EVAL", SCRIPT, "0"].map(|word| word.as_bytes().to_vec());
        let reply = self.send(&[&head[..], &command].concat());
        assert_shape(&command, &reply);
    }

    fn looks_at_figures(&mut self) {
        self.sent += 1;
        let text = self.client().info_text("leasehold");
        assert!(text.contains("leasehold_panics_caught:0"), "{text}");
    }
}

fn assert_shape(command: &Command, reply: &Value) {
    let shown = shown(command);
    assert!(has_a_shape(reply), "{shown:.200} was answered {reply:?}");
    let is_number = |number| (0..=9_007_199_254_740_991_i64).contains(number);
    assert!(!matches!(reply, Value::Int(number) if !is_number(number)), "{shown:.200}: {reply:?}");
    let internal = matches!(reply, Value::ServerError(error) if error.details().unwrap_or_default().contains("internal"));
    assert!(!internal, "{shown:.200} made the module panic");
}

fn shown(command: &Command) -> String {
    command.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

fn has_a_shape(reply: &Value) -> bool {
    match reply {
        // Scripts make floating numbers of the latest deadlines.
        Value::Nil | Value::Okay | Value::Int(_) => true,
        Value::BulkString(_) | Value::SimpleString(_) => true,
        Value::Array(parts) => parts.iter().all(has_a_shape),
        Value::Map(fields) => fields.iter().all(|(_, value)| has_a_shape(value)),
        // Redis 6.2 does not tell LOCK.DROP who runs a script.
        Value::ServerError(error) if error.code() == "NOPERM" => error
            .details()
            .is_some_and(|details| details.starts_with("LOCK.DROP needs a user with ~*")),
        Value::ServerError(error) => matches!(error.code(), "ERR" | "WRONGTYPE" | "QUEUEFULL"),
        _ => false,
    }
}

#[test]
fn a_server_survives_thousands_of_senseless_commands_and_its_replica_agrees() {
    let mut seed = Seed::announced();
    let (primary, replica) = start_pair(Server::builder(), Server::builder());
    let mut attack = Attack::on(primary, seed.fork());
    let most = short_or_long(30_000, 2_000_000);
    while attack.sent < most {
        attack.goes_on();
    }
    let Attack { server: primary, mut clients, deaf, sent, .. } = attack;
    drop(deaf);
    clients[0].wait_until_waiters(0);
    assert_eq!(clients[0].counter("panics_caught"), 0);
    eventually("the replica agrees", || {
        wait_until_in_sync(&primary, &replica);
        // Short leases may run out between one look and the other.
        let (primary, replica) = (Snapshot::of(&primary), Snapshot::of(&replica));
        if primary == replica { Ok(()) } else { Err((primary, replica)) }
    });
    figure(&format!("senseless commands: {sent}, survived, and the replica agrees"));
}
