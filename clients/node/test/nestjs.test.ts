import 'reflect-metadata';
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { type INestApplicationContext, Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { Redis } from 'ioredis';
import { BusyError, Leasehold } from '../src/index.js';
import { currentLease, LeaseholdModule, Locked } from '../src/nestjs.js';
import { eventually } from './support/eventually.js';
import { TestServer } from './support/server.js';

describe('a program of NestJS', () => {
  let server: TestServer;
  let client: Redis;
  let program: INestApplicationContext;
  let reports: Reports;

  class Reports {
    readonly prefix = 'wrote';

    async write(number: number, part: string): Promise<unknown[]> {
      const held = (await server.call('KEYS', 'report*')) as unknown[];
      const busy = this.again(number, part).catch((error: unknown) => error);
      return [this.prefix, currentLease().fence, String(held), await busy];
    }

    async again(number: number, part: string): Promise<string> {
      return `${number} ${part}`;
    }

    async outer(): Promise<string> {
      return this.inner();
    }

    async inner(): Promise<string> {
      return String(await server.call('KEYS', 'nested'));
    }

    // biome-ignore lint/suspicious/noExplicitAny: it is wrong on purpose.
    later(): any {
      return { subscribe: () => {} };
    }

    async long(): Promise<unknown> {
      return new Promise((resolve) => {
        finish = async () => resolve(await server.call('EXISTS', 'long'));
      });
    }

    async named(part: { id: string }): Promise<unknown> {
      return server.call('EXISTS', `part-${part.id}`);
    }
  }
  let finish: () => Promise<void>;
  // As a compiler of decorators has it.
  const decorate = (key: keyof Reports, decorator: MethodDecorator) => {
    const descriptor = Object.getOwnPropertyDescriptor(Reports.prototype, key) as PropertyDescriptor;
    decorator(Reports.prototype, key, descriptor);
    Object.defineProperty(Reports.prototype, key, descriptor);
  };
  Reflect.defineMetadata('told', 17, Reports.prototype.write);
  decorate('write', Locked('report:{0}:{1}') as MethodDecorator);
  decorate('again', Locked('report:{0}:{1}', { wait: 0 }) as MethodDecorator);
  decorate('named', Locked(({ id }: { id: string }) => `part-${id}`) as MethodDecorator);
  decorate('outer', Locked('nested', { reentrant: true }) as MethodDecorator);
  decorate('inner', Locked('nested', { reentrant: true, wait: 0 }) as MethodDecorator);
  decorate('later', Locked('later') as MethodDecorator);
  decorate('long', Locked('long') as MethodDecorator);
  Injectable()(Reports);

  before(async () => {
    server = await TestServer.start();
    client = new Redis({ path: server.socket });
    const module = Test.createTestingModule({
      imports: [LeaseholdModule.forRootAsync({ useFactory: async () => ({ client, settings: { ttl: 5_000 } }) })],
      providers: [Reports],
    });
    program = (await module.compile()).enableShutdownHooks();
    await program.init();
    reports = program.get(Reports);
  });
  after(async () => {
    client.disconnect();
    await server.stop();
  });

  it('runs methods under the locks that their arguments name', async () => {
    const [prefix, fence, held, busy] = await reports.write(7, 'a:b');
    assert.deepEqual([prefix, typeof fence, held], ['wrote', 'bigint', 'report:7:a%3Ab']);
    assert(busy instanceof BusyError);
    assert.equal(await reports.again(7, 'a:b'), '7 a:b');
    assert.equal(await reports.named({ id: 'x' }), 1);
    assert.equal(await server.call('DBSIZE'), 0);
    assert.equal(Reflect.getMetadata('told', reports.write), 17);
    assert.throws(currentLease, /no method/);
    await assert.rejects(reports.again({} as never, 'a'), /no text/);
  });

  it('enters a lock again where it is told to, and refuses work that begins later', async () => {
    assert.equal(await reports.outer(), 'nested');
    await assert.rejects(reports.later(), /begins later/);
    await assert.rejects(new Reports().inner(), /LeaseholdModule/);
    assert.equal(await server.call('DBSIZE'), 0);
  });

  it('ends its locks when it ends, and what works under them', async () => {
    const locks = program.get(Leasehold);
    const lease = await locks.acquire('left');
    const long = reports.long();
    await eventually(async () => (await server.call('EXISTS', 'long')) === 1);
    const closing = program.close();
    await new Promise((resolve) => setImmediate(resolve));
    await finish();
    assert.equal(await long, 1);
    await closing;
    assert.equal(lease.validFor(), 0);
    assert.equal(await server.call('EXISTS', 'left'), 0);
  });
});
