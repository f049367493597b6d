import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Answer } from '../src/asking.js';
import { makeClock, now } from '../src/clock.js';
import { at, cancel } from '../src/deadlines.js';
import { Extensions } from '../src/extensions.js';
import { beside, plainly } from '../src/plain.js';
import { words } from '../src/questions.js';
import { fields, integer } from '../src/reply.js';
import { Steps, Unanswered } from '../src/steps.js';
import { drift, patienceForAnswer, validUntil } from '../src/validity.js';
import { codeOf, refusal, told, verdict } from '../src/verdict.js';
import { grantIn } from '../src/waiting/places.js';

const key = Buffer.from('printer');

describe('the clock', () => {
  let [fine, wall, coarse] = [100, 7_000_000, 50_000];
  const make = (read = () => coarse) => {
    [fine, wall, coarse] = [100, 7_000_000, 50_000];
    const now = makeClock(
      () => fine,
      () => wall,
      read,
    );
    now();
    return now;
  };
  const pass = (ms: number, slept = 0) => {
    fine += ms;
    wall += ms + slept;
    coarse += ms + slept;
  };

  it('goes on while the machine sleeps, in the first call, and never back', () => {
    const now = make();
    const first = now();
    pass(1_000);
    assert.equal(now() - first, 1_000);
    pass(1, 3_600_000);
    assert.equal(now() - first, 3_601_001);
    const woken = now();
    coarse -= 200;
    pass(1_100);
    assert.equal(now() - woken, 1_100);
  });

  it('does not go with the clock on the wall, which somebody sets', () => {
    const now = make();
    const first = now();
    wall += 3_600_000;
    assert.equal(now() - first, 0);
    wall -= 7_200_000;
    pass(5_000);
    assert.equal(now() - first, 5_000);
    // It was set back by as long as the machine slept.
    pass(0, 60_000);
    wall -= 60_000;
    pass(1_001);
    assert.equal(now() - first, 66_001);
  });

  it('goes by the clock on the wall where nothing else may be read', () => {
    const now = make(() => {
      throw new Error('Requires sys access to "osUptime"');
    });
    const first = now();
    pass(1, 3_600_000);
    assert.equal(now() - first, 3_600_001);
  });

  it('reads no file in each call', () => {
    let reads = 0;
    const now = make(() => {
      reads++;
      return coarse;
    });
    for (let count = 0; count < 1_000; count++) {
      pass(1);
      now();
    }
    assert(reads <= 3, `${reads}`);
  });
});

describe('a lease', () => {
  it('is counted from the asking less the drift', () => {
    assert.equal(drift(1_000), 12);
    assert.equal(validUntil(5_000, 1_000), 5_988);
    assert.equal(validUntil(5_000, 1), 5_000);
  });

  it('has less time for an answer when it is short', () => {
    assert.equal(patienceForAnswer(1_000, 30_000), 1_000);
    assert.equal(patienceForAnswer(1_000, 1_000), 200);
    assert.equal(patienceForAnswer(1_000, 100), 50);
  });
});

describe('extensions', () => {
  const answer = (repeated = false): Answer => ({ number: 1, asked: 0, repeated });

  it('count for no more than a shorter one that was given up', () => {
    const extensions = new Extensions();
    extensions.begin(1_000);
    assert.equal(extensions.counted(extensions.begin(60_000), answer(), 60_000), 1_000);
  });

  it('count in full when all before were answered', () => {
    const extensions = new Extensions();
    assert.equal(extensions.counted(extensions.begin(1_000), answer(), 1_000), 1_000);
    assert.equal(extensions.counted(extensions.begin(60_000), answer(), 60_000), 60_000);
  });

  it('count for nothing after a later one was answered', () => {
    const extensions = new Extensions();
    const first = extensions.begin(60_000);
    extensions.counted(extensions.begin(1_000), answer(), 1_000);
    assert.equal(extensions.counted(first, answer(), 60_000), undefined);
  });

  it('of which a try was not answered may still be carried out', () => {
    const extensions = new Extensions();
    extensions.counted(extensions.begin(1_000), answer(true), 1_000);
    assert.equal(extensions.counted(extensions.begin(60_000), answer(), 60_000), 1_000);
  });
});

describe('a question', () => {
  it('is one command', () => {
    const claim = { key, also: [], owner: 'alice', share: 1 };
    const asks = (question: Parameters<typeof words>[1], more = {}) => words({ ...claim, ...more }, question).join(' ');
    const ttl = 5_000;
    assert.equal(asks({ ask: 'acquire', ttl }), 'LOCK.ACQUIRE printer alice 5000');
    assert.equal(asks({ ask: 'acquire', ttl }, { share: 0 }), 'LOCK.ACQUIRE printer alice 5000 SHARE 0');
    const ticket = 'LOCK.ACQUIRE printer alice 5000 TICKET 15000 NOTIFY grants';
    assert.equal(asks({ ask: 'ticket', ttl, kept: 15_000, channel: 'grants' }), ticket);
    assert.equal(asks({ ask: 'ticket', ttl, kept: 1, channel: undefined }), 'LOCK.ACQUIRE printer alice 5000 TICKET 1');
    assert.equal(asks({ ask: 'wait', ttl, patience: 0.2 }), 'LOCK.ACQUIRE printer alice 5000 BLOCK 1');
    const also = ['ink', 'paper'];
    assert.equal(asks({ ask: 'extend', ttl: 1.5, fence: 7 }, { share: 0 }), 'LOCK.EXTEND printer alice 2 7');
    assert.equal(asks({ ask: 'extend', ttl, fence: 7 }, { also }), 'LOCK.EXTEND printer alice 5000 7 ALSO 2 ink paper');
    assert.equal(asks({ ask: 'release', fence: 7 }), 'LOCK.RELEASE printer alice 7');
    assert.equal(asks({ ask: 'release' }), 'LOCK.RELEASE printer alice');
  });

  it('keeps the last fence in the slot of the lock', () => {
    const kept = (name: string) => beside(Buffer.from(name)).toString();
    assert.equal(kept('printer'), '{printer}:fence');
    assert.equal(kept('{order}.lock'), '{order}.lock:fence');
    assert.equal(kept('a{b}c'), 'a{b}c:fence');
    assert.equal(kept('a}c'), 'a}c:fence');
  });

  it('names the whole value of a lock that another kind of client wrote', () => {
    const claim = { key, also: [], owner: 'alice', share: 1 };
    assert.deepEqual(plainly(claim, { ask: 'release', fence: 0 }).args, ['1', key, 'alice']);
    const { args } = plainly(claim, { ask: 'release', fence: 7 });
    assert.deepEqual(args, ['1', key, '0000000000000007:alice']);
  });
});

describe('a reply', () => {
  it('is an integer in whichever shape', () => {
    const fence = 9_007_199_254_740_991;
    for (const reply of [fence, BigInt(fence), String(fence), Buffer.from(String(fence))]) {
      assert.equal(integer(reply), fence);
    }
    assert.equal(integer(null), null);
    for (const reply of ['', '1.5', {}, 1.5, 'x', true]) assert.throws(() => integer(reply));
  });

  it('has names and values in whichever shape', () => {
    const shapes = [['owner', 'a'], [Buffer.from('owner'), 'a'], new Map([['owner', 'a']]), { owner: 'a' }];
    for (const shape of shapes) assert.equal(fields(shape).get('owner'), 'a');
  });

  it('tells of a grant by its owner, who may have spaces and bytes', () => {
    assert.deepEqual(grantIn(Buffer.from('17 5 a b c key')), { owner: 'a b c', fence: 17 });
    assert.deepEqual(grantIn(Buffer.from('17 3 ß! a key')), { owner: 'ß!', fence: 17 });
    for (const message of ['', '17', '17 x owner key', '17 99 owner key', '17 0  key', 'x 1 a key', '-1 1 a key']) {
      assert.equal(grantIn(Buffer.from(message)), undefined, message);
    }
  });
});

describe('an error', () => {
  it('means what its code says', () => {
    const cases: [string, string][] = [
      ['READONLY You can not write', 'elsewhere'],
      ['UNBLOCKED this server became a replica', 'elsewhere'],
      ['QUEUEFULL too many waiters', 'again'],
      ['LOADING Redis is loading', 'again'],
      ['REPLACED a newer request', 'replaced'],
      ['NOSCRIPT No matching script', 'unknown script'],
      ["ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You can't", 'elsewhere'],
      ["ERR unknown command 'LOCK.ACQUIRE', with args beginning with: ", 'unknown command'],
      ['ERR max number of clients reached', 'again'],
      ['WRONGTYPE Operation against a key', 'refused'],
      ['OOM command not allowed', 'refused'],
      ['Connection is closed.', 'broken'],
      ['read ECONNRESET', 'broken'],
      ['', 'broken'],
    ];
    for (const [message, means] of cases) assert.equal(verdict(new Error(message)), means, message);
  });

  it('of the handshake is found in what the client library made of it', () => {
    const cause = new Error('WRONGPASS invalid username-password pair');
    assert.equal(told(new Error('Reached the max retries', { cause })).name, 'AuthenticationError');
    assert.equal(told(new Error('Socket closed')).name, 'UnreachableError');
    assert.equal(codeOf(new Error("Stream isn't writeable")), undefined);
  });

  it('of an older module, or a channel that is not allowed, refuses tickets', () => {
    const said = (message: string) => refusal(new Error(message));
    assert.equal(said('NOPERM this user has no permissions to access the channel given to NOTIFY'), 'no channel');
    assert.equal(said('ERR NOTIFY is not possible on this server'), 'no channel');
    assert.equal(said('ERR unknown option, expected SHARE holders or BLOCK milliseconds'), 'no tickets');
    assert.equal(said('ERR TICKET must be an integer from 1 to 5000 (milliseconds, config leasehold.max-ttl)'), 5_000);
    assert.equal(said('NOPERM this user has no permissions to access the key'), undefined);
  });
});

describe('deadlines', () => {
  it('come in their order, unless they are cancelled', async () => {
    const came: number[] = [];
    const begun = now();
    const order = Array.from({ length: 200 }, (_, index) => (index * 77) % 200);
    const all = order.map((number) => at(begun + 20 + number / 10, () => came.push(number)));
    for (const [index, deadline] of all.entries()) if ((order[index] ?? 0) % 3 === 0) cancel(deadline);
    await new Promise<void>((resolve) => at(begun + 60, resolve));
    assert.deepEqual(
      came,
      Array.from({ length: 200 }, (_, number) => number).filter((number) => number % 3 !== 0),
    );
    assert(now() - begun >= 60);
  });
});

describe('the steps of a request', () => {
  it('end with an answer, too late, or when they are stopped', async () => {
    const steps = new Steps();
    assert.equal(await steps.within(1_000, Promise.resolve(7)), 7);
    await assert.rejects(steps.within(5, new Promise(() => {})), Unanswered);
    assert.equal(await steps.sleep(5), undefined);
    assert.equal(
      await steps.asleep<string>(now() + 1_000, (step) => setImmediate(() => step.arrive('woken'))),
      'woken',
    );
    const both = [
      steps.sleep(60_000),
      steps.within(60_000, new Promise(() => {})),
      steps.sleep(Number.POSITIVE_INFINITY),
    ];
    const ended = Promise.allSettled(both);
    const reason = new Error('enough');
    steps.stop(reason);
    for (const one of await ended) assert(one.status === 'rejected' && one.reason === reason);
    await assert.rejects(steps.sleep(1), reason);
    await assert.rejects(steps.within(1, Promise.reject(new Error('nobody waits for it'))), reason);
  });
});
