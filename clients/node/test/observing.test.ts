/** Who leads, seen by the server's key events. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Leader } from '../src/index.js';
import { LIBRARIES, type Setup, stage } from './support/clients.js';
import { eventually } from './support/eventually.js';
import type { TestServer } from './support/server.js';

for (const library of LIBRARIES) {
  describe(`an election that is observed, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    stage(library, (scene) => ({ server, one, other } = scene), { config: ['--notify-keyspace-events', 'KA'] });
    const subscribers = async (name: string) =>
      ((await server.call('PUBSUB', 'NUMSUB', `__keyspace@0__:${name}`)) as unknown[])[1] as number;

    it('is looked at when a leader comes, goes, or is lost, and at no other time', async () => {
      const seen: (string | undefined)[] = [];
      const stop = new AbortController();
      const observing = (async () => {
        const election = other.locks.election('e', '');
        for await (const leader of election.observe({ lookEvery: 3_600_000, signal: stop.signal })) {
          seen.push(leader?.candidate);
        }
      })();
      await eventually(() => seen.length === 1);
      const term = await one.locks.election('e', 'first').campaign();
      await eventually(() => seen.at(-1) === 'first');
      const second = one.locks.election('e', 'second').campaign({ ttl: 500, renew: false });
      await term.resign();
      await eventually(() => seen.at(-1) === 'second');
      await (await second).lease.lost;
      await eventually(() => seen.at(-1) === undefined);
      await server.call('CONFIG', 'RESETSTAT');
      await server.call('CLIENT', 'KILL', 'TYPE', 'pubsub');
      // It listens again, and looks at what it has missed.
      await eventually(async () => (await subscribers('e')) === 1);
      const third = await one.locks.election('e', 'third').campaign();
      await eventually(() => seen.at(-1) === 'third');
      await third.resign();
      stop.abort();
      await observing;
      await eventually(async () => (await subscribers('e')) === 0);
      const [, looks = 0] = /cmdstat_lock.info:calls=(\d+)/i.exec(await server.control.info('commandstats')) ?? [];
      assert(Number(looks) <= 8, `${looks} looks`);
      one.troubles.length = 0;
    });

    it('is looked at again and again where there are no events, or none for this user', async () => {
      await server.call('ACL', 'SETUSER', 'small', 'on', '>secret', '+@all', '-config', '~*', '&*');
      const { client, close } = await library.connect(server, { username: 'small', password: 'secret' });
      const { Leasehold } = await import('../src/index.js');
      const locks = new Leasehold(client);
      for (const each of [locks, other.locks]) {
        if (each !== locks) await server.call('CONFIG', 'SET', 'notify-keyspace-events', 'KEdx');
        const seen: (Leader | null)[] = [];
        const stop = new AbortController();
        const observing = (async () => {
          for await (const leader of each.election('f', '').observe({ lookEvery: 10, signal: stop.signal }))
            seen.push(leader);
        })();
        const term = await one.locks.election('f', 'me').campaign();
        await eventually(() => seen.at(-1)?.candidate === 'me');
        await term.resign();
        await eventually(() => seen.at(-1) === null);
        assert.equal(await subscribers('f'), 0);
        stop.abort();
        await observing;
      }
      await locks.close();
      close();
    });
  });
}
