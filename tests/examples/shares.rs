//! The recipes of docs/clients.md for locks that several hold, as printed: each test runs all of them.

use super::leases::ONE;
use super::recipe::{Locks, Recipe};
use super::{address_of, page, server};
use testkit::{Client, int};

const PAGE: &str = "docs/clients.md";

/// Longer than it takes to ask for a few locks at once.
const HOLD: u64 = 2_000;

fn joins(client: &mut Client, owner: &str, share: u64) {
    let reply = client.cmd(format!("LOCK.ACQUIRE k {owner} 60000 SHARE {share}"));
    assert!(matches!(reply, redis::Value::Int(1..)), "{reply:?}");
}

#[test]
fn readers_are_let_in_together_and_a_writer_only_alone() {
    for recipe in Recipe::all() {
        let server = server();
        let text = recipe.text(&address_of(&server));
        let mut client = server.client();
        joins(&mut client, "reader", 0);
        let came = |share, count| {
            let outcomes = recipe.takes(&text, Locks { hold: HOLD, count, share, ..ONE });
            outcomes.into_iter().map(|outcome| outcome.came).collect::<Vec<_>>()
        };
        let readers = came(0, 4);
        assert!(readers.iter().all(|came| came.starts_with("done ")), "{readers:?}");
        assert_eq!(came(1, 1), ["busy"], "{}", recipe.client);
        assert_eq!(client.info("k").unwrap().holders, 1, "{}: not given back", recipe.client);
        assert!(client.release("k", "reader"));
        client.grant("k", "writer", 60_000);
        assert_eq!(came(0, 1), ["busy"], "{}", recipe.client);
    }
}

#[test]
fn of_five_who_want_one_of_three_permits_one_holds_already_three_are_refused() {
    for recipe in Recipe::all() {
        let server = server();
        let text = recipe.text(&address_of(&server));
        joins(&mut server.client(), "another", 3);
        let outcomes = recipe.takes(&text, Locks { hold: HOLD, count: 5, share: 3, ..ONE });
        let busy = outcomes.iter().filter(|outcome| outcome.is("busy")).count();
        let done = outcomes.iter().filter(|outcome| outcome.is("done")).count();
        assert_eq!((done, busy), (2, 3), "{}: {outcomes:?}", recipe.client);
    }
}

#[test]
fn whoever_waits_for_a_permit_gets_one_in_the_end() {
    for recipe in Recipe::all() {
        let server = server();
        let text = recipe.text(&address_of(&server));
        let locks = Locks { patience: 30_000, hold: 20, count: 20, share: 3, ..ONE };
        let outcomes = recipe.takes(&text, locks);
        assert!(outcomes.iter().all(|outcome| outcome.is("done")), "{outcomes:?}");
        assert_eq!(server.cmd("EXISTS k"), int(0), "{}", recipe.client);
    }
}

/// What the page puts around them: two read at once, and one writes when they are gone.
#[test]
fn what_reads_writes_or_takes_a_permit_says_how_many_it_tolerates() {
    const HEADING: &str = "Readers, writers and pools";
    const IN_NODE: &str = "
        const share = async () => {
          const info = await send('LOCK.INFO', 'k'); // a map in RESP3
          return Array.isArray(info) ? info[info.findIndex((name) => String(name) === 'share') + 1] : info.share;
        };
        for (const [kind, name] of [[reading, 'reading'], [writing, 'writing'], [oneOf(5), 'oneOf']])
          console.log(name, Number(await kind('k', { ttl: 60000 }, share)));
        process.exit(0);";
    const IN_THREADS: &str = "
def share():
    info = client.execute_command('LOCK.INFO', 'k')
    return info[b'share'] if isinstance(info, dict) else info[info.index(b'share') + 1]

for name, held in [('reading', reading('k')), ('writing', writing('k')), ('oneOf', one_of(5, 'k'))]:
    with held:
        print(name, share())
";
    const IN_ASYNCIO: &str = "
async def main():
    async def share():
        info = await client.execute_command('LOCK.INFO', 'k')
        return info[b'share'] if isinstance(info, dict) else info[info.index(b'share') + 1]

    for name, held in [('reading', reading('k')), ('writing', writing('k')), ('oneOf', one_of(5, 'k'))]:
        async with held:
            print(name, await share())
    await client.aclose()

asyncio.run(main())
";
    for recipe in Recipe::all() {
        let server = server();
        let (language, program) = match recipe.client {
            "redis-py" => ("python", IN_THREADS),
            "redis-py with asyncio" => ("python", IN_ASYNCIO),
            _ => ("js", IN_NODE),
        };
        let around = page::blocks(PAGE, HEADING, language);
        let text = recipe.text(&address_of(&server));
        let told = recipe.run(&format!("{text}\n{around}\n{program}")).output();
        assert_eq!(told, "reading 0\nwriting 1\noneOf 5\n", "{}", recipe.client);
    }
}
