//! A recipe of docs/clients.md as it is printed there, and a program around it that takes locks.

use super::node::{IOREDIS, Installed, NODE_REDIS};
use super::program::{Told, run};
use super::python::REDIS_PY;
use super::{ADDRESS, page};
use std::path::PathBuf;
use std::process::Command;

const PAGE: &str = "docs/clients.md";

/// Takes locks with `withLock`, all at once, and says of each how long it took and what came of it.
const DRIVER_OF_NODE: &str = r"
const one = async (number) => {
  const begun = performance.now();
  const work = (lease) => new Promise((resolve) => {
    const done = setTimeout(resolve, HOLD, `done ${lease.fence}`);
    const lost = () => (clearTimeout(done), resolve('lost'));
    lease.signal.addEventListener('abort', lost);
  });
  const taken = withLock('NAME'.replace('#', number), { ttl: TTL, patience: PATIENCE, share: SHARE }, work);
  const came = await taken.catch((error) => `error ${error.message}`);
  console.log(`${Math.round(performance.now() - begun)} ${came ?? 'busy'}`);
};
await Promise.all(Array.from({ length: COUNT }, (_, number) => one(number)));
process.exit(0);
";

const DRIVER_OF_THREADS: &str = r"
def one(number):
    begun = time.monotonic()
    try:
        with lock('NAME'.replace('#', str(number)), ttl=TTL / 1000, patience=PATIENCE / 1000, share=SHARE) as lease:
            if lease is None:
                came = 'busy'
            else:
                came = 'lost' if lease.lost.wait(HOLD / 1000) else f'done {lease.fence}'
    except Exception as error:
        came = f'error {error}'
    print(f'{round((time.monotonic() - begun) * 1000)} {came}\n', end='', flush=True)

threads = [threading.Thread(target=one, args=(number,)) for number in range(COUNT)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
";

const DRIVER_OF_ASYNCIO: &str = r"
async def one(number):
    begun = time.monotonic()
    try:
        async with lock('NAME'.replace('#', str(number)), ttl=TTL / 1000, patience=PATIENCE / 1000, share=SHARE) as lease:
            if lease is None:
                came = 'busy'
            else:
                done = [asyncio.create_task(lease.lost.wait())]
                came = 'lost' if (await asyncio.wait(done, timeout=HOLD / 1000))[0] else f'done {lease.fence}'
    except Exception as error:
        came = f'error {error}'
    print(round((time.monotonic() - begun) * 1000), came, flush=True)

async def main():
    await asyncio.gather(*map(one, range(COUNT)))
    await client.aclose()

asyncio.run(main())
";

/// The block that waits says so, and the ways to wait on a shared connection take its place.
const OWN_CONNECTION: &str = "In the server's queue, on a connection of its own.";

pub(super) struct Recipe {
    pub(super) client: &'static str,
    /// The headings of what it consists of, one after another.
    headings: Vec<&'static str>,
    /// Where the page says what takes the place of the block with the address.
    in_a_cluster: &'static str,
    /// The headings of what takes the place of the block that waits, if it waits by tickets.
    by_tickets: Vec<&'static str>,
    pub(super) language: &'static str,
    driver: &'static str,
    interpreter: Interpreter,
}

enum Interpreter {
    Node(&'static Installed),
    Python(PathBuf),
}

/// What a program is to do.
#[derive(Clone, Copy)]
pub(super) struct Locks<'a> {
    /// `#` stands for the number of the lock.
    pub(super) name: &'a str,
    /// In milliseconds, as all that follows.
    pub(super) ttl: u64,
    pub(super) patience: u64,
    /// How long the work takes that is done under each.
    pub(super) hold: u64,
    pub(super) count: u64,
    /// How many at a time each of them tolerates.
    pub(super) share: u64,
}

/// How one request for a lock ended.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) millis: u64,
    /// `done` with the fence, `lost`, `busy`, or `error` with its text.
    pub(super) came: String,
}

impl Recipe {
    /// All whose clients are there.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let threads = Self::of_python("redis-py", "redis-py, RedisCluster", DRIVER_OF_THREADS);
        Self::of_javascript().chain(threads).chain(Self::asyncio())
    }

    /// Those that wait by tickets.
    pub(super) fn by_tickets() -> impl Iterator<Item = Self> {
        let node = [
            Self::ioredis().map(|recipe| (recipe, vec!["ioredis, by tickets", "With a ticket"])),
            Self::node_redis()
                .map(|recipe| (recipe, vec!["node-redis, by tickets", "With a ticket"])),
            Self::asyncio().map(|recipe| (recipe, vec!["redis-py with asyncio, by tickets"])),
        ];
        node.into_iter().flatten().map(|(recipe, by_tickets)| Self { by_tickets, ..recipe })
    }

    pub(super) fn of_javascript() -> impl Iterator<Item = Self> {
        [Self::ioredis(), Self::node_redis()].into_iter().flatten()
    }

    pub(super) fn ioredis() -> Option<Self> {
        Self::of_node("ioredis", "ioredis, Cluster", IOREDIS.installed()?)
    }

    fn node_redis() -> Option<Self> {
        Self::of_node("node-redis", "node-redis, createCluster", NODE_REDIS.installed()?)
    }

    fn of_node(
        client: &'static str,
        in_a_cluster: &'static str,
        installed: &'static Installed,
    ) -> Option<Self> {
        Some(Self {
            client,
            headings: vec![client, "With a lock"],
            in_a_cluster,
            by_tickets: Vec::new(),
            language: "js",
            driver: DRIVER_OF_NODE,
            interpreter: Interpreter::Node(installed),
        })
    }

    pub(super) fn asyncio() -> Option<Self> {
        let in_a_cluster = "redis-py with asyncio, RedisCluster";
        Self::of_python("redis-py with asyncio", in_a_cluster, DRIVER_OF_ASYNCIO)
    }

    fn of_python(
        client: &'static str,
        in_a_cluster: &'static str,
        driver: &'static str,
    ) -> Option<Self> {
        Some(Self {
            client,
            headings: vec![client],
            in_a_cluster,
            by_tickets: Vec::new(),
            language: "python",
            driver,
            interpreter: Interpreter::Python(REDIS_PY.programs()?.join("python")),
        })
    }

    /// As printed, for this server.
    pub(super) fn text(&self, address: &str) -> String {
        self.joined(address, |block| block)
    }

    /// As printed for a cluster of which this is a node.
    pub(super) fn text_in_a_cluster(&self, address: &str) -> String {
        let another = page::each_block(PAGE, self.in_a_cluster, self.language).concat();
        self.joined(address, |block| if block.contains(ADDRESS) { another.clone() } else { block })
    }

    fn joined(&self, address: &str, of: impl Fn(String) -> String) -> String {
        let below = |heading: &&str| page::each_block(PAGE, heading, self.language);
        let mut blocks: Vec<_> = self.headings.iter().flat_map(below).collect();
        let by_tickets: Vec<_> = self.by_tickets.iter().flat_map(below).collect();
        if !by_tickets.is_empty() {
            let names_the_server = |block: &String| block.contains(ADDRESS);
            let another = by_tickets.iter().any(names_the_server);
            blocks.retain(|block| !(another && names_the_server(block)));
            let waits = blocks.iter().position(|block| block.contains(OWN_CONNECTION)).unwrap();
            blocks.splice(waits..=waits, by_tickets);
        }
        let text = blocks.into_iter().map(of).collect::<Vec<_>>().join("\n");
        assert_eq!(text.matches(ADDRESS).count(), 1, "a recipe for one server: {text}");
        text.replace(ADDRESS, address)
    }

    pub(super) fn run(&self, text: &str) -> Told {
        match &self.interpreter {
            Interpreter::Node(installed) => installed.program(text),
            Interpreter::Python(python) => run(Command::new(python).arg("-c").arg(text)),
        }
    }

    /// Takes these locks at once, with the recipe in `text`.
    pub(super) fn takes(&self, text: &str, locks: Locks<'_>) -> Vec<Outcome> {
        let numbers = [
            ("TTL", locks.ttl),
            ("PATIENCE", locks.patience),
            ("HOLD", locks.hold),
            ("COUNT", locks.count),
            ("SHARE", locks.share),
        ];
        let driver = self.driver.replace("NAME", locks.name);
        let driver = numbers
            .into_iter()
            .fold(driver, |driver, (name, number)| driver.replace(name, &number.to_string()));
        let told = self.run(&format!("{text}\n{driver}"));
        assert!(told.success, "{}: {}{}", self.client, told.out, told.err);
        let outcomes: Vec<_> = told.out.lines().map(Outcome::parse).collect();
        assert_eq!(outcomes.len() as u64, locks.count, "{}: {}", told.out, told.err);
        outcomes
    }
}

/// One in JavaScript, which may have more around it.
pub(super) struct Script(pub(super) Recipe);

impl Script {
    /// Prints what this comes to, with what the page has under these headings besides.
    pub(super) fn program(&self, headings: &[&str], expression: &str, address: &str) -> Told {
        let mut text = self.0.text(address);
        for heading in headings {
            text.push_str(&page::blocks(PAGE, heading, "js"));
        }
        self.0.run(&format!("{text}\nconsole.log(await ({expression}));\nprocess.exit(0);\n"))
    }
}

impl Outcome {
    fn parse(line: &str) -> Self {
        let (millis, came) = line.split_once(' ').unwrap_or_else(|| panic!("no outcome: {line}"));
        Self { millis: millis.parse().unwrap(), came: came.to_owned() }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        self.came.split(' ').next() == Some(word)
    }
}
