import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { BusyError, Leasehold, TooLateError, UnreachableError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { Gate } from './support/gate.js';
import { TestServer } from './support/server.js';

/** What a machine that is busy with other things may add. */
const SLACK = 700;

/** Nothing else runs meanwhile. */
function block(ms: number): void {
  const end = performance.now() + ms;
  while (performance.now() < end);
}

for (const library of LIBRARIES) {
  describe(`what goes wrong, with ${library.name}`, () => {
    let server: TestServer;
    let one: Setup;
    let other: Setup;
    before(async () => {
      server = await TestServer.start();
      one = await leasehold(library, server);
      other = await leasehold(library, server);
    });
    after(async () => {
      server.goOn();
      await one.close();
      await other.close();
      await server.stop();
    });

    it('a program that was busy past its lease knows at once that it is lost', async () => {
      const lease = await one.locks.acquire('a', { ttl: 400 });
      const { signal } = lease;
      block(500);
      assert.equal(signal.aborted, true);
      assert.equal(lease.validFor(), 0);
      assert.equal(await lease.lost, 'expired');
      assert.equal(await lease.release(), 'late');
    });

    it('a program that was busy when it was granted the lock counts from before it asked', async () => {
      await (await one.locks.acquire('warm')).release();
      const acquired = one.locks.acquire('a', { ttl: 500, renew: false });
      block(800);
      const lease = await acquired;
      const looked = performance.now();
      const valid = lease.validFor();
      const left = await server.control.pttl('a');
      assert(valid <= left + (performance.now() - looked), `valid for ${valid}, left ${left}`);
      await lease.release();
    });

    it('a grant whose answer took longer than the lease is no lease', async () => {
      await (await one.locks.acquire('warm')).release();
      const short = await leasehold(library, server, { within: 300 });
      await (await short.locks.acquire('warm')).release();
      const acquired = short.locks.tryAcquire('a', { ttl: 300 });
      acquired.catch(() => {});
      block(700);
      await assert.rejects(acquired, (error) => error instanceof TooLateError || error instanceof UnreachableError);
      await short.close();
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('a lease is renewed through a cut of half its ttl', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer);
      const lease = await through.locks.acquire('a', { ttl: 2_400 });
      const begun = performance.now();
      gate.cut();
      await eventually(() => performance.now() - begun > 1_200);
      gate.mend();
      await eventually(() => performance.now() - begun > 3_200);
      assert(lease.validFor() > 0);
      assert.equal(await lease.release(), 'released');
      await through.close();
      gate.stop();
    });

    it('a lease is renewed on when an extension of it has failed', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer, { within: 300 });
      const lease = await through.locks.acquire('a', { ttl: 3_000 });
      gate.cut();
      await assert.rejects(lease.extend(60_000), UnreachableError);
      gate.mend();
      // Longer than the lease was.
      await eventually(() => lease.validFor() > 5_000, 2_900);
      assert.equal(await lease.release(), 'released');
      await through.close();
      gate.stop();
    });

    it('a connection that is dead without having said so costs no lease and no request', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer);
      const lease = await through.locks.acquire('a', { ttl: 2_400 });
      const begun = performance.now();
      gate.deafen();
      await eventually(() => performance.now() - begun > 3_600);
      assert(lease.validFor() > 0);
      const waiting = through.locks.acquire('a', { wait: 20_000 });
      await eventually(async () => (await server.waiters('a')) === 1);
      assert.equal(await lease.release(), 'released');
      const next = await waiting;
      assert.equal((await through.locks.info('a'))?.fence, next.fence);
      assert.equal(await next.release(), 'released');
      assert.deepEqual(await through.locks.close(2_000), []);
      await through.close();
      gate.stop();
    });

    it('a server that was busy for a while is asked on one connection again', async () => {
      const lone = await TestServer.start();
      const setup = await leasehold(library, lone);
      const connected = async () => ((await lone.call('CLIENT', 'LIST')) as string).trim().split('\n').length;
      await (await setup.locks.acquire('a')).release();
      const before = await connected();
      lone.pause();
      const asked = setup.locks.tryAcquire('a');
      const begun = performance.now();
      await eventually(() => performance.now() - begun > 1_300);
      lone.goOn();
      assert.equal(await (await asked)?.release(), 'released');
      await (await setup.locks.acquire('a')).release();
      await eventually(async () => (await connected()) === before);
      assert.equal(await lone.call('EXISTS', 'a'), 0);
      await setup.close();
      await lone.stop();
    });

    it('a lease that was shortened is over in time, though nobody heard the answer', async () => {
      const gate = await Gate.start(server);
      const through = await leasehold(library, { socket: gate.socket } as TestServer);
      const lease = await through.locks.acquire('a', { ttl: 30_000 });
      gate.deafen();
      const extended = lease.extend(900);
      await eventually(async () => (await server.control.pttl('a')) <= 900);
      gate.cut();
      const next = await other.locks.acquire('a', { wait: 10_000 });
      assert.equal(lease.validFor(), 0);
      assert.equal(await extended, 'lost');
      assert.equal(through.troubles[0]?.kind, 'lost');
      assert.equal(await next.release(), 'released');
      await through.close();
      gate.stop();
    });

    it('a lease is lost when its server has been silent for as long as it lasts, and not later', async () => {
      const lease = await one.locks.acquire('a', { ttl: 900 });
      const end = performance.now() + lease.validFor();
      server.pause();
      assert.equal(await lease.lost, 'expired');
      assert(performance.now() < end + SLACK && performance.now() > end - 50);
      server.goOn();
      assert.equal(await lease.release(), 'late');
    });

    it('a wait ends at its deadline when the server is silent, and gives back what it is granted later', async () => {
      await (await one.locks.acquire('warm')).release();
      await server.call('CONFIG', 'RESETSTAT');
      server.pause();
      const begun = performance.now();
      await assert.rejects(one.locks.acquire('a', { wait: 1_000, ttl: 60_000 }), UnreachableError);
      const waited = performance.now() - begun;
      assert(waited > 400 && waited < 1_000 + SLACK, `${waited}`);
      server.goOn();
      await eventually(() => server.hasReleased());
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('a wait in the queue ends at its deadline when the server falls silent, and leaves no place', async () => {
      const lease = await other.locks.acquire('a', { ttl: 60_000 });
      const begun = performance.now();
      const waits = one.locks.acquire('a', { wait: 1_500, ttl: 60_000 });
      waits.catch(() => {});
      await eventually(async () => (await server.waiters('a')) === 1);
      server.pause();
      await assert.rejects(waits);
      const waited = performance.now() - begun;
      assert(waited >= 1_000 && waited < 1_500 + SLACK, `${waited}`);
      server.goOn();
      await eventually(async () => (await server.waiters('a')) === 0);
      assert.equal(await lease.release(), 'released');
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('a request that does not wait is given up in time', async () => {
      await server.call('CONFIG', 'RESETSTAT');
      server.pause();
      const begun = performance.now();
      const short = await leasehold(library, server, { within: 400 });
      await assert.rejects(short.locks.tryAcquire('a', { ttl: 60_000 }), UnreachableError);
      assert(performance.now() - begun < 400 + SLACK);
      const closing = performance.now();
      assert.deepEqual(await short.locks.close(300), ['a']);
      assert(performance.now() - closing < 300 + SLACK);
      server.goOn();
      await eventually(() => server.hasReleased());
      assert.equal(await server.call('EXISTS', 'a'), 0);
      await short.close();
    });

    it('a release that is under way is waited for by close, and named', async () => {
      const setup = await leasehold(library, server, { within: 20_000 });
      const lease = await setup.locks.acquire('a');
      server.pause();
      const released = lease.release();
      assert.deepEqual(await setup.locks.close(300), ['a']);
      server.goOn();
      assert.equal(await released, 'released');
      await setup.close();
    });

    it('what is told of trouble may throw, and harms nobody', async () => {
      const connected = await library.connect(server);
      const warnings: unknown[] = [];
      const hear = (warning: unknown) => warnings.push(warning);
      process.on('warning', hear);
      const failure = new Error('cannot be told');
      const onTrouble = () => {
        throw failure;
      };
      const locks = new Leasehold(connected.client, { onTrouble, within: 100 });
      const lease = await locks.acquire('a', { ttl: 300, renew: false });
      block(400);
      assert.equal(lease.signal.aborted, true);
      assert.equal(await lease.release(), 'late');
      server.pause();
      const stop = new AbortController();
      const asks = locks.tryAcquire('a', { signal: stop.signal, ttl: 300 });
      stop.abort();
      await assert.rejects(asks);
      await eventually(() => warnings.length >= 2);
      assert(warnings.every((warning) => warning === failure));
      process.off('warning', hear);
      server.goOn();
      await locks.close(2_000);
      connected.close();
    });

    it('the result of the work is not lost when the release fails, nor late', async () => {
      const short = await leasehold(library, server, { within: 500 });
      let begun = 0;
      const result = await short.locks.with('a', { ttl: 60_000 }, async () => {
        server.pause();
        begun = performance.now();
        return 17;
      });
      assert(performance.now() - begun < 500 + SLACK);
      assert.equal(result, 17);
      assert.equal(short.troubles[0]?.kind, 'release failed');
      server.goOn();
      await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
      await short.close();
    });

    it('the failure of the work is not lost when the release fails', async () => {
      const short = await leasehold(library, server, { within: 300 });
      const failure = new Error('the work failed');
      const work = () => {
        server.pause();
        throw failure;
      };
      await assert.rejects(short.locks.with('a', { ttl: 60_000 }, work), (error) => error === failure);
      server.goOn();
      await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
      await short.close();
    });

    it('a wait whose connections are killed keeps its place', async () => {
      const lease = await other.locks.acquire('a');
      const order: string[] = [];
      const wait = async (setup: Setup, who: string) => {
        const mine = await setup.locks.acquire('a', { wait: 30_000 });
        order.push(who);
        await mine.release();
      };
      const first = wait(one, 'first');
      await eventually(async () => (await server.waiters('a')) === 1);
      const second = wait(other, 'second');
      await eventually(async () => (await server.waiters('a')) === 2);
      await server.killClients();
      await eventually(async () => (await server.call('PUBSUB', 'NUMPAT')) === 0);
      await lease.release();
      await Promise.all([first, second]);
      assert.deepEqual(order, ['first', 'second']);
    });

    it('a wait whose connections are killed again and again ends at its deadline', async () => {
      const lease = await other.locks.acquire('a', { ttl: 20_000 });
      const begun = performance.now();
      const killing = setInterval(() => void server.killClients(), 150);
      await assert.rejects(one.locks.acquire('a', { wait: 1_500 }));
      clearInterval(killing);
      const waited = performance.now() - begun;
      assert(waited > 1_000 && waited < 1_500 + SLACK, `${waited}`);
      await lease.release();
      await eventually(async () => (await server.call('EXISTS', 'a')) === 0);
      assert.equal(await server.waiters('a'), 0);
    });

    it('a wait outlives a server that starts again', async () => {
      const lease = await other.locks.acquire('r', { ttl: 20_000, renew: false });
      const waits = one.locks.acquire('r', { wait: 30_000 });
      await eventually(async () => (await server.waiters('r')) === 1);
      await server.died();
      await server.run();
      assert.equal(await (await waits).release(), 'released');
      await lease.release();
    });

    it('whoever stops waiting leaves no place and no lock', async () => {
      const lease = await other.locks.acquire('a');
      const stop = new AbortController();
      const waits = one.locks.acquire('a', { signal: stop.signal });
      await eventually(async () => (await server.waiters('a')) === 1);
      const reason = new Error('stop');
      stop.abort(reason);
      await assert.rejects(waits, (error) => error === reason);
      await eventually(async () => (await server.waiters('a')) === 0);
      await lease.release();
      const early = one.locks.acquire('a', { signal: AbortSignal.abort(reason) });
      await assert.rejects(early, (error) => error === reason);
      // In the middle of the request.
      const late = new AbortController();
      await server.call('CONFIG', 'RESETSTAT');
      const asks = one.locks.acquire('a', { signal: late.signal, ttl: 60_000 });
      late.abort(reason);
      await assert.rejects(asks, (error) => error === reason);
      await eventually(() => server.hasReleased());
      assert.equal(await server.call('EXISTS', 'a'), 0);
    });

    it('a thousand waits take two connections', async () => {
      // A busy program may be slow to hear an answer.
      const third = await leasehold(library, server, { response: 10_000 });
      const names = Array.from({ length: 1_000 }, (_, number) => `many:${number}`);
      const leases = await Promise.all(names.map((name) => one.locks.acquire(name, { ttl: 60_000 })));
      const connections = async () => ((await server.call('CLIENT', 'LIST')) as string).trim().split('\n').length;
      // Its own connection is there by then.
      await third.locks.info('many:0');
      const before = await connections();
      const waits = names.map((name) => third.locks.acquire(name, { wait: 60_000, ttl: 60_000 }));
      await eventually(async () => (await server.waiters('many:999')) === 1, 30_000);
      // The one for requests was there. The other one may be a moment later than the place in the queue.
      await eventually(async () => (await connections()) > before);
      assert.equal((await connections()) - before, 1);
      await Promise.all(leases.map((lease) => lease.release()));
      const got = await Promise.all(waits);
      assert.equal(new Set(got.map(({ fence }) => fence)).size, 1_000);
      assert.deepEqual(await third.locks.close(20_000), []);
      assert.equal((await server.control.keys('many:*')).length, 0);
      await third.close();
    });

    it('a wait without limit ends when no server has answered for too long', async () => {
      const lone = await TestServer.start();
      const setup = await leasehold(library, lone, { unreachableAfter: 600 });
      const lease = await setup.locks.acquire('a', { ttl: 20_000, renew: false });
      const waits = setup.locks.acquire('a');
      waits.catch(() => {});
      await eventually(async () => (await lone.waiters('a')) === 1);
      await lone.died();
      await assert.rejects(waits, UnreachableError);
      lease.detach();
      await setup.locks.close(100);
      await setup.close();
      await lone.stop();
    });

    it('busy is told apart from unreachable', async () => {
      const lease = await other.locks.acquire('a');
      await assert.rejects(one.locks.acquire('a', { wait: 50 }), BusyError);
      await lease.release();
    });
  });
}
