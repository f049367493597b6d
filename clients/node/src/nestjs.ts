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
import type { AcquireOptions, Settings } from './settings.js';

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

/** Ends the program's locks with the program. */
class Owner {
  constructor(readonly locks: Leasehold) {}

  async onApplicationShutdown(): Promise<void> {
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

type Method = (...given: never[]) => unknown;

/** `{0}` is the first argument. The values are escaped, as in a URL: other arguments are another name. */
export function Locked(name: string | ((...given: never[]) => string), options: AcquireOptions = {}) {
  const nameOf = typeof name === 'function' ? name : (...given: unknown[]) => filled(name, given);
  return (target: object, _key: string | symbol, descriptor: PropertyDescriptor): void => {
    const work = descriptor.value as Method;
    Inject(Leasehold)(target, LOCKS);
    descriptor.value = async function (this: { [LOCKS]: Leasehold }, ...given: never[]) {
      const lock = this[LOCKS].write(nameOf(...given));
      return lock.with(options, (lease) => running.run(lease, () => work.apply(this, given)));
    };
    // What other decorators have said of the method.
    Object.setPrototypeOf(descriptor.value, work);
  };
}

function filled(name: string, given: readonly unknown[]): string {
  return name.replace(/\{(\d+)\}/g, (_, number) => {
    const value = given[Number(number)];
    const isText = ['string', 'number', 'bigint', 'boolean'].includes(typeof value);
    if (!isText) throw new SettingError('name', `the argument ${number} is no text or number`);
    return encodeURIComponent(String(value));
  });
}
