/** What a program says that makes no sense is told by name, before anything is asked. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { Redis } from 'ioredis';
import { Leasehold, LeaseholdError, SettingError, SurpriseError } from '../src/index.js';

const NEVER = 'never' as never;

describe('what makes no sense is refused', () => {
  const client = new Redis({ lazyConnect: true });
  let locks: Leasehold;
  before(() => {
    locks = new Leasehold(client);
  });
  after(() => {
    assert.equal(client.status, 'wait');
    client.disconnect();
  });
  const is = (name: string, text: RegExp) => (error: unknown) =>
    error instanceof SettingError && error.setting === name && text.test(error.message);

  it('as a client or a setting', () => {
    assert.throws(() => new Leasehold({} as never), SettingError);
    const cases: [object, string, RegExp][] = [
      [{ ttl: 0 }, 'ttl', /at least 3 and at most 3153600000000 /],
      [{ ttl: 900719925474099 }, 'ttl', /at most 3153600000000 /],
      [{ waitConnections: 100_000 }, 'waitConnections', /at most 99999/],
      [{ ttl: 2 }, 'ttl', /at least 3/],
      [{ waitConnections: 0 }, 'waitConnections', /whole number/],
      [{ wait: Number.NaN }, 'wait', /number/],
      [{ onTrouble: 'log' }, 'onTrouble', /function/],
      [{ onEvent: 'log' }, 'onEvent', /function/],
      [{ keyPrefix: 'app:' }, 'keyPrefix', /did you mean prefix\?/],
      [{ unreachable_after: 5 }, 'unreachable_after', /did you mean unreachableAfter\?/],
      [{ colour: 'red' }, 'colour', /there are prefix, ttl, wait,/],
    ];
    for (const [settings, name, text] of cases) {
      assert.throws(() => new Leasehold(client, settings), is(name, text), JSON.stringify(settings));
    }
    assert.throws(() => new Leasehold(client, 'lock:' as never), SettingError);
  });

  it('as an option, with the one that was meant', async () => {
    const cases: [object, string, RegExp][] = [
      [{ timeout: 10 }, 'timeout', /no such option: did you mean wait\?/],
      [{ timeoutMs: 10 }, 'timeoutMs', /did you mean wait\?/],
      [{ tll: 10 }, 'tll', /did you mean ttl\?/],
      [{ hold_at_least: 10 }, 'hold_at_least', /did you mean holdAtLeast\?/],
      [{ duration: 10 }, 'duration', /did you mean ttl\?/],
      [{ sginal: undefined, singal: AbortSignal.abort() }, 'singal', /did you mean signal\?/],
      [{ fairness: true }, 'fairness', /there are ttl, wait, signal, renew, confirm, holdAtLeast/],
      [{ ttl: 2 }, 'ttl', /at least 3/],
      [{ renew: 'yes' }, 'renew', /number/],
      [{ owner: '' }, 'owner', /1 to 255 bytes/],
      [{ owner: 'x'.repeat(256) }, 'owner', /1 to 255 bytes/],
      [{ signal: new AbortController() }, 'signal', /AbortSignal/],
    ];
    for (const [options, name, text] of cases) {
      const what = JSON.stringify(options);
      await assert.rejects(locks.acquire('a', options), is(name, text), what);
      await assert.rejects(locks.tryAcquire('a', options), is(name, text), what);
      await assert.rejects(
        locks.with('a', options, () => {}),
        is(name, text),
        what,
      );
      await assert.rejects(locks.election('e', 'me').campaign(options), is(name, text), what);
    }
    await assert.rejects(locks.tryAcquire('a', { wait: 10 } as object), is('wait', /tryAcquire does not wait/));
    await assert.rejects(locks.acquire('a', null as never), SettingError);
    await assert.rejects(locks.acquire(7 as never), is('name', /string or bytes/));
    await assert.rejects(locks.info({} as never), is('name', /string or bytes/));
  });

  it('as work that is none, before it waits', async () => {
    const without = locks.with as (name: string, ...given: unknown[]) => Promise<unknown>;
    await assert.rejects(without.call(locks, 'a', {}), is('work', /function/));
    await assert.rejects(without.call(locks, 'a'), is('work', /function/));
    await assert.rejects(without.call(locks, 'a', {}, 'work'), is('work', /function/));
  });

  it('by all that has options or numbers', async () => {
    for (const lookEvery of [0, Number.NaN, -1, NEVER]) {
      await assert.rejects(locks.election('e', 'me').observe({ lookEvery }).next(), SettingError);
    }
    const rare = locks.election('e', 'me').observe({ interval: 5 } as object);
    await assert.rejects(rare.next(), is('interval', /did you mean lookEvery\?/));
    assert.throws(() => locks.election('e', undefined as never), is('candidate', /string/));
    await assert.rejects(locks.close({ limit: 5 } as never), is('limit', /number/));
    assert.throws(() => locks.semaphore('s', 0), is('permits', /at least 1 and at most 99999/));
    assert.throws(() => locks.semaphore('s', 100_000), is('permits', /at most 99999/));
    for (const names of [[], ['a', 'a'], ['a', Buffer.from('a')], 'a' as never, Array(130).fill('a')]) {
      assert.throws(() => locks.several(names), is('names', /1 to 129|once/));
    }
    assert.throws(() => locks.several(['a', 7 as never]), is('name', /string or bytes/));
  });

  it('by errors that a program can tell apart', () => {
    const error = new SurpriseError();
    assert(error instanceof LeaseholdError);
    assert.equal(error.name, 'SurpriseError');
  });
});
