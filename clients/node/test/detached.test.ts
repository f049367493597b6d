/** Locks that are left held, and gone on with by somebody else; owners that a program has chosen. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Detached, LostError, SettingError } from '../src/index.js';
import { LIBRARIES, leasehold, type Setup } from './support/clients.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

describe('the text of a detached lock', () => {
  it('names it by letters, digits and -._~, and by the bytes of all others', () => {
    const text = 'leasehold:order%3A7:worker-1:1763942400000000';
    const detached = Detached.parse(text);
    assert.deepEqual([...detached.keys], ['order:7']);
    assert.equal(detached.owner, 'worker-1');
    assert.equal(detached.fence, 1763942400000000n);
    assert.equal(String(detached), text);
    assert.equal(JSON.stringify({ detached }), `{"detached":"${text}"}`);
    const several = Detached.parse('leasehold:a_b.~-%2C,%FF%00,%E2%98%83:o%25:0');
    assert.deepEqual([...several.keys], ['a_b.~-,', Buffer.from([255, 0]), '☃']);
    assert.equal(String(several), 'leasehold:a_b.~-%2C,%FF%00,%E2%98%83:o%25:0');
  });

  it('is refused if it is another', () => {
    const wrong = [
      '',
      'leasehold:a:b',
      'lease:a:b:1',
      'leasehold:a::1',
      'leasehold:a:b:x',
      'leasehold:a b:c:1',
      'x:leasehold:a:b:1',
      'leasehold:%2:b:1',
    ];
    for (const text of wrong) assert.throws(() => Detached.parse(text), SettingError, text);
  });
});

for (const library of LIBRARIES) {
  for (const plain of [false, true]) {
    describe(`a lock that is left held, with ${library.name}${plain ? ', without the module' : ''}`, () => {
      let server: TestServer;
      let one: Setup;
      let other: Setup;
      before(async () => {
        server = await TestServer.start({ plain });
        one = await leasehold(library, server, { prefix: 'app:' });
        other = await leasehold(library, server, { ttl: 900 });
      });
      after(async () => {
        await one.close();
        await other.close();
        await server.stop();
      });

      it('is adopted, renewed, and released by somebody else', async () => {
        const lease = await one.locks.acquire('a:1', { ttl: 1_500 });
        const text = String(lease.detach());
        assert.equal(text, `leasehold:app%3Aa%3A1:${lease.owner.replace(':', '%3A')}:${lease.fence}`);
        assert.equal(await lease.lost, 'released');
        const adopted = await other.locks.adopt(text);
        assert.deepEqual([adopted.name, adopted.owner, adopted.fence], ['app:a:1', lease.owner, lease.fence]);
        const end = performance.now() + 1_800;
        await eventually(() => performance.now() > end);
        assert(adopted.validFor() > 0);
        assert.equal(await adopted.release(), 'released');
        assert.equal(await server.call('EXISTS', 'app:a:1'), 0);
      });

      it('is told of its loss when it is adopted too late, and when it is lost after that', async () => {
        const detached = (await one.locks.acquire('b', { ttl: 60_000 })).detach();
        const adopted = await other.locks.adopt(detached);
        await server.call('DEL', 'app:b');
        assert.equal(await adopted.lost, 'taken');
        await assert.rejects(other.locks.adopt(detached), LostError);
        assert.deepEqual(
          other.troubles.map(({ kind }) => kind),
          ['lost'],
        );
      });

      it('is held as whom the program says', async () => {
        const lease = await one.locks.acquire('c', { owner: 'host-1' });
        assert.equal(lease.owner, 'host-1');
        assert.equal(await other.locks.tryAcquire('app:c', { owner: 'host-2' }), null);
        const again = await one.locks.tryAcquire('c', { owner: 'host-1' });
        assert.equal(again?.fence, lease.fence);
        again?.detach();
        assert.equal(await lease.release(), 'released');
      });

      it('has its lease extended by so much', async () => {
        const lease = await one.locks.acquire('d', { ttl: 10_000 });
        assert.equal(await lease.extendBy(20_000), 'extended');
        const left = (await server.call('PTTL', 'app:d')) as number;
        assert(left > 29_000 && left <= 30_200, `${left}`);
        await assert.rejects(lease.extendBy(-1), SettingError);
        await lease.release();
        assert.equal(await lease.extendBy(1), 'lost');
      });
    });
  }
}
