//! The recipes of docs/clients.md for data on the server of the lock, as printed: each test runs all of them.

use super::leases::redirections;
use super::recipe::Recipe;
use super::{address_of, page, server};
use testkit::{Cluster, Server, bulk, lacks};

const PAGE: &str = "docs/clients.md";

/// Writes while it holds the lock, and once more when that was deleted. Says what the numbers of its visits are, and then with
/// which code the last write failed, and whether the lease is lost by then.
const IN_JAVASCRIPT: &str = r"
for (const tag of [TAGS]) {
  const lease = await acquire(`{${tag}}lock`, { ttl: 60_000 });
  const set = await guarded(lease, 'SET', `{${tag}}page`, 'news');
  const page = await guarded(lease, 'GET', `{${tag}}page`);
  await guarded(lease, 'SET', `{${tag}}bytes`, Buffer.from([0, 13, 255]));
  const bytes = await guarded(lease, 'STRLEN', `{${tag}}bytes`);
  if (set !== 'OK' || page !== 'news' || bytes !== 3) throw new Error(`${set} ${page} ${bytes}`);
  const visits = await guarded(lease, 'INCR', `{${tag}}visits`);
  await send('DEL', lease.key);
  const error = await guarded(lease, 'SET', `{${tag}}page`, 'late').catch((error) => error);
  console.log(visits, error.message.split(' ')[0], lease.signal.aborted);
}
process.exit(0);
";

const IN_THREADS: &str = r"
for tag in [TAGS]:
    lease = acquire('{' + tag + '}lock', ttl=60)
    guarded(lease, 'SET', '{' + tag + '}page', 'news')
    visits = guarded(lease, 'INCR', '{' + tag + '}visits')
    client.execute_command('DEL', lease.key)
    try:
        guarded(lease, 'SET', '{' + tag + '}page', 'late')
    except ResponseError as error:
        print(visits, str(error).split(' ')[0], str(lease.lost.is_set()).lower())
";

const IN_ASYNCIO: &str = r"
async def main():
    for tag in [TAGS]:
        lease = await acquire('{' + tag + '}lock', ttl=60)
        await guarded(lease, 'SET', '{' + tag + '}page', 'news')
        visits = await guarded(lease, 'INCR', '{' + tag + '}visits')
        await client.execute_command('DEL', lease.key)
        try:
            await guarded(lease, 'SET', '{' + tag + '}page', 'late')
        except ResponseError as error:
            print(visits, str(error).split(' ')[0], str(lease.lost.is_set()).lower())
    await client.aclose()

asyncio.run(main())
";

/// Writes behind the fence of one lock after another, whose names and data have these tags.
fn assert_guards(recipe: &Recipe, text: &str, tags: &[&str]) {
    let (heading, program) = match recipe.client {
        "redis-py" => ("redis-py, guarded", IN_THREADS),
        "redis-py with asyncio" => ("redis-py with asyncio, guarded", IN_ASYNCIO),
        _ => ("ioredis and node-redis, guarded", IN_JAVASCRIPT),
    };
    let tags: Vec<_> = tags.iter().map(|tag| format!("'{tag}'")).collect();
    let (guarded, program) =
        (page::blocks(PAGE, heading, recipe.language), program.replace("TAGS", &tags.join(", ")));
    let told = recipe.run(&format!("{text}\n{guarded}\n{program}")).output();
    let lines: Vec<_> = told.lines().collect();
    assert_eq!(lines, vec!["1 NOTHOLDER true"; tags.len()], "{}: {told}", recipe.client);
}

fn assert_written_once(node: &Server, tag: &str) {
    assert_eq!(node.cmd(format!("GET {{{tag}}}page")), bulk("news"));
    assert_eq!(node.cmd(format!("GET {{{tag}}}visits")), bulk("1"));
}

#[test]
fn the_holder_writes_and_whoever_has_lost_the_lock_does_not_and_is_told() {
    for recipe in Recipe::all() {
        let server = server();
        assert_guards(&recipe, &recipe.text(&address_of(&server)), &["k"]);
        assert_written_once(&server, "k");
    }
}

#[test]
fn in_a_cluster_a_guarded_write_goes_to_the_node_that_has_the_lock() {
    if lacks((6, 2), "errorstats") {
        return;
    }
    for recipe in Recipe::all() {
        let cluster = Cluster::of(3, 0);
        let tags: Vec<_> = (0..3).map(|node| cluster.slot_of(node).key("")).collect();
        let tags: Vec<_> = tags.iter().map(|key| key.trim_matches(['{', '}'])).collect();
        assert_guards(&recipe, &recipe.text_in_a_cluster(&address_of(cluster.node(0))), &tags);
        for (node, tag) in cluster.nodes().iter().zip(&tags) {
            assert_written_once(node, tag);
        }
        let redirected: u64 = cluster.nodes().iter().map(|node| redirections(node)).sum();
        assert_eq!(redirected, 0, "{}", recipe.client);
        let asks = |node: &Server| node.client().executed().contains_key("command|getkeys");
        assert!(!cluster.nodes().iter().any(|node| asks(node)), "{} asks for keys", recipe.client);
    }
}
