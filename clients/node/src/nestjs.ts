/**
 * Locks in NestJS: `LeaseholdModule.forRoot({ client })` provides a `Leasehold`, and `@Locked('report:{0}')` has each call of
 * a method hold a lock, whose name the arguments make up.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { type DynamicModule, Inject, Module } from '@nestjs/common';
import type { Client } from './adapters/shapes.js';
import { SettingError } from './errors.js';
import type { Lease } from './lease.js';
import { Leasehold } from './leasehold.js';
import type { WithOptions } from './lock.js';
import type { Settings } from './settings.js';
import { Steps } from './steps.js';

export interface LeaseholdModuleOptions {
  /** It stays the program's. */
  client: Client;
  settings?: Settings;
}

export interface LeaseholdModuleAsyncOptions {
  imports?: DynamicModule['imports'];
  inject?: unknown[];
  useFactory: (...given: never[]) => LeaseholdModuleOptions | Promise<LeaseholdModuleOptions>;
}

/** How long what still runs when the program ends may keep its locks. */
const LAST_STEPS = 10_000;

/** The methods that are running under locks. */
const atWork = new WeakMap<Leasehold, Set<Promise<unknown>>>();

/** Ends the program's locks with the program: when the work under them has ended. */
class Owner {
  constructor(readonly locks: Leasehold) {}

  async onApplicationShutdown(): Promise<void> {
    const working = Promise.allSettled(atWork.get(this.locks) ?? []);
    await new Steps(false).within(LAST_STEPS, working).catch(() => {});
    await this.locks.close();
  }
}

/** For the whole program: no other module imports it. */
// biome-ignore lint/complexity/noStaticOnlyClass: NestJS knows a module by its class.
export class LeaseholdModule {
  static forRoot(options: LeaseholdModuleOptions): DynamicModule {
    return LeaseholdModule.forRootAsync({ useFactory: () => options });
  }

  static forRootAsync({ imports = [], inject = [], useFactory }: LeaseholdModuleAsyncOptions): DynamicModule {
    const locks = {
      provide: Leasehold,
      inject: inject as never[],
      useFactory: async (...given: never[]) => {
        const { client, settings } = await useFactory(...given);
        return new Leasehold(client, settings);
      },
    };
    const owner = { provide: Owner, inject: [Leasehold], useFactory: (its: Leasehold) => new Owner(its) };
    return { module: LeaseholdModule, global: true, imports, providers: [locks, owner], exports: [Leasehold] };
  }
}

Module({})(LeaseholdModule);

const running = new AsyncLocalStorage<Lease>();

/** The lease of the `@Locked` method that is running: its fence, and its signal. */
export function currentLease(): Lease {
  const lease = running.getStore();
  if (lease === undefined) throw new Error('no method with @Locked is running');
  return lease;
}

const LOCKS = Symbol('leasehold');

// biome-ignore lint/suspicious/noExplicitAny: the arguments are those of whichever method it is.
type Method = (...given: any[]) => Promise<any>;

/**
 * `{0}` is the first argument. The values are escaped, as in a URL: other arguments are another name. A method that calls
 * another one of the same lock needs `reentrant: true` on both.
 */
export function Locked(name: string | ((...given: never[]) => string), options: WithOptions = {}) {
  const nameOf = typeof name === 'function' ? name : (...given: unknown[]) => filled(name, given);
  return <T extends Method>(target: object, key: string | symbol, descriptor: TypedPropertyDescriptor<T>): void => {
    const work = descriptor.value as T;
    Inject(Leasehold)(target, LOCKS);
    const locked = async function (this: { [LOCKS]?: Leasehold }, ...given: never[]) {
      const locks = this[LOCKS];
      if (locks === undefined)
        throw new Error(`${String(key)}: @Locked needs LeaseholdModule, and an object that NestJS has made`);
      const run = async (lease: Lease) => {
        const result: unknown = await running.run(lease, () => work.apply(this, given));
        if (isLater(result))
          throw new SettingError('Locked', `${String(key)} must return a promise: its work begins later`);
        return result;
      };
      const working = locks.write(nameOf(...given)).with(options, run);
      const all = atWork.get(locks) ?? new Set();
      atWork.set(locks, all.add(working));
      try {
        return await working;
      } finally {
        all.delete(working);
      }
    };
    // What other decorators have said of the method.
    descriptor.value = Object.setPrototypeOf(locked, work);
  };
}

/** An observable, or an asynchronous generator: the lock would be released before anybody asks for the first value. */
function isLater(result: unknown): boolean {
  if (typeof result !== 'object' || result === null) return false;
  return 'subscribe' in result || Symbol.asyncIterator in result;
}

function filled(name: string, given: readonly unknown[]): string {
  return name.replace(/\{(\d+)\}/g, (_, number) => {
    const value = given[Number(number)];
    const isText = ['string', 'number', 'bigint', 'boolean'].includes(typeof value);
    if (!isText) throw new SettingError('name', `the argument ${number} is no text or number`);
    return encodeURIComponent(String(value));
  });
}
